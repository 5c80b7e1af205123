#include "megatron/nn/module.h"

#include "megatron/base/error.h"

namespace megatron {

Module::Module(Module* parent, std::string_view name)
    : declared_(parent != nullptr ? parent->declared_
                                  : std::make_shared<decltype(declared_)::element_type>()) {
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
  std::weak_ptr<Parameter>& known = (*declared_)[name];
  if (const std::shared_ptr<Parameter> parameter = known.lock()) {
    MEGATRON_CHECK(parameter->sharding().global_shape == spec.sharding.global_shape, name,
                   " is declared with two shapes");
    return *parameter;
  }
  parameters_.push_back(
      std::make_shared<Parameter>(std::move(name), std::move(spec), std::move(axes)));
  known = parameters_.back();
  return *parameters_.back();
}

}  // namespace megatron
