// Hooks around the units of a model (embedding, each layer, the final norm): diagnosis hangs on them, and gathering weights on demand can.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/transformer/module.h"

namespace megatron {

class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  /// Before a unit's forward: its weights are about to be read.
  virtual void before_forward(const Module& /*unit*/) {}
  /// After a unit's forward, with its output.
  virtual void after_forward(const Module& /*unit*/, const at::Tensor& /*output*/) {}
};

/// Runs `forward` of a unit between its hooks; `hooks` may be null.
template <class Forward>
at::Tensor run_unit(UnitHooks* hooks, const Module& unit, Forward forward) {
  if (hooks != nullptr) hooks->before_forward(unit);
  at::Tensor output = forward();
  if (hooks != nullptr) hooks->after_forward(unit, output);
  return output;
}

}  // namespace megatron
