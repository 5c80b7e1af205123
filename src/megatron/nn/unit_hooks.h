// Hooks around the units of a model (embedding, each layer, final norm) and after the ops inside
// them. Diagnosis uses them, and gathering weights on demand can.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "megatron/nn/module.h"

namespace megatron {

/// Interface of an observer of a forward pass. The defaults do nothing.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  /// Called before a unit's forward, when its weights are about to be read.
  virtual void before_forward(const Module& /*unit*/) {}
  /// Called after a unit's forward with its output.
  virtual void after_forward(const Module& /*unit*/, const at::Tensor& /*output*/) {}
  /// Called after an op of a unit, in the order of the forward pass. `op` is a module's path,
  /// optionally followed by an op name ("decoder.layers.0.self_attention.core_attention").
  /// Dimension 1 of the output is the batch.
  virtual void after_op(const std::string& /*op*/, const at::Tensor& /*output*/) {}
};

/// Runs `forward` of a unit between its hooks. `hooks` may be null.
template <class Forward>
at::Tensor run_unit(UnitHooks* hooks, const Module& unit, Forward forward) {
  if (hooks != nullptr) hooks->before_forward(unit);
  at::Tensor output = forward();
  if (hooks != nullptr) hooks->after_forward(unit, output);
  return output;
}

/// Passes the output of op `name` of `module` to the hooks; an empty name means the module itself.
/// `hooks` may be null.
inline void notify_op(UnitHooks* hooks, const Module& module, std::string_view name,
                      const at::Tensor& output) {
  if (hooks == nullptr) return;
  const std::string separator = module.path().empty() || name.empty() ? "" : ".";
  hooks->after_op(module.path() + separator + std::string(name), output);
}

}  // namespace megatron
