// Rotary embedding. One thread rotates one pair of channels, or copies one channel outside
// rotary_dim.
#pragma once

#include "kernels/cuda/portable.h"
#include "kernels/row_operations.h"

namespace megatron::kernels::cuda {

MEGATRON_HOST_DEVICE inline std::int64_t rotary_items_per_head(const RotaryArguments& a) {
  return a.head_dim - a.rotary_dim / 2;
}

/// Processes item `item` of tokens·heads·rotary_items_per_head.
template <class T>
MEGATRON_HOST_DEVICE void rotary_item(const RotaryArguments& a, std::int64_t item) {
  using C = Compute<T>;
  const std::int64_t per_head = rotary_items_per_head(a), half = a.rotary_dim / 2;
  const std::int64_t i = item % per_head, head = item / per_head % a.heads,
                     token = item / per_head / a.heads;
  const T* in = static_cast<const T*>(a.x) + token * a.token_stride + head * a.head_stride;
  T* out = static_cast<T*>(a.out) + (token * a.heads + head) * a.head_dim;
  if (i >= half) {
    out[half + i] = in[half + i];
    return;
  }
  const std::int64_t table = token / a.tokens_per_row * half + i;
  const C cos = static_cast<const C*>(a.cos)[table], sin = static_cast<const C*>(a.sin)[table],
          sign = static_cast<C>(a.sign);
  const std::int64_t first = a.interleaved ? 2 * i : i,
                     second = a.interleaved ? first + 1 : first + half;
  const C x = load(in[first]), y = load(in[second]);
  store(out[first], x * cos - sign * y * sin);
  store(out[second], y * cos + sign * x * sin);
}

}  // namespace megatron::kernels::cuda
