// The formula of SGD with momentum (kernels/cpu/sgd.cpp) for one element.
#pragma once

#include "kernels/cuda/element_update_body.h"

namespace megatron::kernels::cuda {

/// The rule with scalars of the type C of the main weights.
template <class C>
struct Sgd {
  C grad_scale, weight_decay, momentum, lr;

  MEGATRON_HOST_DEVICE Sgd(const SgdRule& rule, const StepScalars& scalars,
                           const UpdateChunk& chunk)
      : grad_scale(static_cast<C>(scalars.grad_scale)),
        weight_decay(static_cast<C>(chunk.is_decayed ? scalars.weight_decay : 0)),
        momentum(static_cast<C>(rule.momentum)),
        lr(static_cast<C>(scalars.lr[chunk.group] * chunk.lr_factor)) {}

  MEGATRON_HOST_DEVICE C element(C grad, C weight, C* momentum_buffer, C*) const {
    C step = grad * grad_scale + weight_decay * weight;
    if (momentum_buffer != nullptr) *momentum_buffer = step = momentum * *momentum_buffer + step;
    return weight - lr * step;
  }
};

}  // namespace megatron::kernels::cuda
