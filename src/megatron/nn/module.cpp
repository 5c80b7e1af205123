#include "megatron/nn/module.h"

namespace megatron {

Module::Module(Module* parent, std::string_view name) {
  const bool is_below = parent != nullptr && !parent->path().empty();
  path_ = std::make_shared<const std::string>((is_below ? parent->path() + "." : std::string()) +
                                              std::string(name));
  if (parent != nullptr) parent->children_.push_back(this);
}

void Module::visit(const std::function<void(Module&)>& visitor) {
  visitor(*this);
  for (Module* child : children_) child->visit(visitor);
}

std::vector<Parameter*> declared_parameters(Module& root) {
  std::vector<Parameter*> declared;
  root.visit([&](Module& module) {
    for (const auto& parameter : module.parameters()) declared.push_back(parameter.get());
  });
  return declared;
}

Parameter& Module::declare(std::string_view leaf, ParameterSpec spec, std::vector<Axis> axes) {
  std::string name = path().empty() ? std::string(leaf) : path() + "." + std::string(leaf);
  parameters_.push_back(
      std::make_unique<Parameter>(std::move(name), std::move(spec), std::move(axes)));
  return *parameters_.back();
}

}  // namespace megatron
