// The interface of what makes the rows that a stack of layers begins with.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/nn/forward_context.h"
#include "megatron/nn/microbatch.h"
#include "megatron/nn/module.h"

namespace megatron {

class Input : public Module {
 public:
  using Module::Module;
  /// Returns [s, b, h], or this rank's slice of the sequence with sequence parallelism, from the
  /// fields of a microbatch. `position_ids` is int64 [b, s] or [1, s], on the device of the rank.
  /// Collective over tp.
  virtual at::Tensor forward(const Microbatch& microbatch, const at::Tensor& position_ids,
                             const ForwardContext& context) const = 0;
};

}  // namespace megatron
