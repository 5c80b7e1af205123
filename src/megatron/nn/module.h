// A module is a dotted path with parameters and child modules. Layers derive from it, hold their
// children as members and define their own forward().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/parallel/current_layer.h"
#include "megatron/params/parameter.h"

namespace megatron {

class Module {
 public:
  /// Registers the module with `parent` (null for the root). Its path is the parent's path, a dot
  /// and `name`.
  Module(Module* parent, std::string_view name);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  const std::string& path() const { return *path_; }
  /// Returns the path as the name of a layer, for LayerScope.
  const LayerName& layer_name() const { return path_; }
  /// Returns the 0-based index in the whole model of a layer; nullopt of any other module.
  virtual std::optional<std::int64_t> layer_index() const { return std::nullopt; }
  const std::vector<std::shared_ptr<Parameter>>& parameters() const { return parameters_; }
  /// Calls `visitor` for this module and every one below it, in declaration order.
  void visit(const std::function<void(Module&)>& visitor);

 protected:
  /// Declares a parameter named `path().leaf`, without storage, with the axes of its splits.
  /// Returns the parameter of that name if a module of the same tree, which must live as long, has
  /// one: weights that are used in several places (tied embeddings) are one Parameter.
  Parameter& declare(std::string_view leaf, ParameterSpec spec, std::vector<Axis> axes);
  Parameter& declare(std::string_view leaf, ParameterSpec spec, const Axis& axis) {
    return declare(leaf, std::move(spec), std::vector<Axis>{axis});
  }

 private:
  LayerName path_;
  std::vector<Module*> children_;
  std::vector<std::shared_ptr<Parameter>> parameters_;
  /// All parameters of the tree, by name.
  std::shared_ptr<std::map<std::string, std::weak_ptr<Parameter>>> declared_;
};

/// A module of one parameter, `path().leaf`.
struct ParameterModule : Module {
  ParameterModule(Module* parent, std::string_view name, ParameterSpec spec, const Axis& axis,
                  std::string_view leaf = "weight")
      : Module(parent, name), parameter(declare(leaf, std::move(spec), axis)) {}
  Parameter& parameter;
};

/// Returns the parameters of `root` and of every module below it, in declaration order.
std::vector<Parameter*> declared_parameters(Module& root);

}  // namespace megatron
