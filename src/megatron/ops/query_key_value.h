// Splits the output of the fused QKV projection into the tensors that attention reads.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/rotary.h"

namespace megatron {

struct QueryKeyValue {
  at::Tensor q, k, v;  ///< [s, b, n or g, d], unit stride in the last dimension
};

/// Splits mixed [s, b, groups·(r + 2)·d], where a query group's rows are its r heads of q, then k,
/// then v, and rotates q and k unless `rotation` is null. Parts that need not move are views of
/// `mixed`. Differentiable; the CPU's backward writes one gradient of `mixed`.
QueryKeyValue split_query_key_value(const at::Tensor& mixed, std::int64_t groups,
                                    std::int64_t head_dim, const Rotation* rotation);

}  // namespace megatron
