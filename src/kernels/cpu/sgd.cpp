// Compiled once for each instruction set.
#include "kernels/cpu/sgd.h"

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/element_update.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

template <class T>
struct Sgd {
  T grad_scale, weight_decay, momentum, lr;

  Sgd(const SgdRule& rule, const StepScalars& scalars, const UpdateChunk& chunk)
      : grad_scale(static_cast<T>(scalars.grad_scale)),
        weight_decay(static_cast<T>(chunk.is_decayed ? scalars.weight_decay : 0)),
        momentum(static_cast<T>(rule.momentum)),
        lr(static_cast<T>(scalars.lr[chunk.group] * chunk.lr_factor)) {}

  Vec16f lanes(const UpdateChunk& chunk, const UpdateTypes& types, std::int64_t i,
               std::int64_t count, Vec16f grad, Vec16f w) const {
    const Vec16f g = grad * broadcast(grad_scale) + broadcast(weight_decay) * w;
    if (chunk.state[0] == nullptr) return w - broadcast(lr) * g;
    const Vec16f b = broadcast(momentum) * load_at(chunk.state[0], types.state[0], i, count) + g;
    store_at(chunk.state[0], types.state[0], i, count, b);
    return w - broadcast(lr) * b;
  }

  T element(T grad, T w, T* momentum_buffer, T*) const {
    T b = grad * grad_scale + weight_decay * w;
    if (momentum_buffer != nullptr) *momentum_buffer = b = momentum * *momentum_buffer + b;
    return w - lr * b;
  }
};

inline void sgd(const UpdateChunk& chunk, const UpdateTypes& types, const SgdRule& rule,
                const StepScalars& scalars) {
  update_elements<Sgd>(chunk, types, rule, scalars);
}

SgdKernels sgd_kernels() { return {sgd}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(SgdKernels, sgd_kernels)
