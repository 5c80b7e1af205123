// Hooks around the units of a model (embedding, each layer, final norm) in forward and backward,
// and after the ops inside them. Diagnosis uses them, and gathering weights on demand can.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "megatron/nn/module.h"

namespace megatron {

/// Interface of an observer of forward and backward passes. The defaults do nothing.
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
  /// Returns whether after_op() is to be called. Ops that are fused otherwise then run one by one,
  /// which needs more memory.
  virtual bool observes_ops() const { return true; }
  /// Returns whether the hooks below are to be called. It must not change between the forward and
  /// the backward of a microbatch.
  virtual bool observes_backward() const { return false; }
  /// Called before a unit's backward, when its weights are about to be read again, with the
  /// gradient of its output.
  virtual void before_backward(const Module& /*unit*/, const at::Tensor& /*gradient*/) {}
  /// Called when a unit's backward is done: it reads the unit's weights no more. Their gradients
  /// have their contributions, unless a schedule defers these to a W step of its own
  /// (ParamStore::Deferral). Backward of a unit whose input needs no gradient (the embedding)
  /// counts as done when the backward pass ends.
  virtual void after_backward(const Module& /*unit*/) {}
  /// Returns the hooks of a forward pass that backward runs again. By default they do nothing, but
  /// observe ops as these do: the second run must consist of the same ops.
  virtual UnitHooks& in_second_run();
};

/// Returns `input`, such that hooks.after_backward(unit) is called when its gradient is complete.
at::Tensor with_after_backward(UnitHooks& hooks, const Module& unit, const at::Tensor& input);
/// Returns `output`, such that hooks.before_backward(unit) is called when its gradient is complete.
/// With `ends_pass`, hooks.after_backward(unit) follows at the end of the backward pass.
at::Tensor with_before_backward(UnitHooks& hooks, const Module& unit, const at::Tensor& output,
                                bool ends_pass);

/// Runs `forward(input)` of a unit between its hooks, with the unit as the thread's current layer.
/// `hooks` may be null. `input` is undefined for a unit whose input has no gradient.
template <class Forward>
at::Tensor run_unit(UnitHooks* hooks, const Module& unit, const at::Tensor& input,
                    Forward forward) {
  const LayerScope scope(unit.layer_name());
  if (hooks == nullptr) return forward(input);
  const bool observes_backward = hooks->observes_backward();
  const bool has_gradient = input.defined() && input.requires_grad();
  hooks->before_forward(unit);
  at::Tensor output =
      forward(observes_backward && has_gradient ? with_after_backward(*hooks, unit, input) : input);
  hooks->after_forward(unit, output);
  return observes_backward ? with_before_backward(*hooks, unit, output, !has_gradient) : output;
}

/// Returns whether `hooks`, which may be null, see the ops of a unit.
inline bool observes_ops(const UnitHooks* hooks) {
  return hooks != nullptr && hooks->observes_ops();
}

/// Passes the output of op `name` of `module` to the hooks; an empty name means the module itself.
/// `hooks` may be null.
inline void notify_op(UnitHooks* hooks, const Module& module, std::string_view name,
                      const at::Tensor& output) {
  if (!observes_ops(hooks)) return;
  const std::string separator = module.path().empty() || name.empty() ? "" : ".";
  hooks->after_op(module.path() + separator + std::string(name), output);
}

}  // namespace megatron
