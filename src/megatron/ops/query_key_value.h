// Splits the output of the fused QKV projection into the tensors that attention reads.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/rotary.h"

namespace megatron {

struct QueryKeyValue {
  at::Tensor q, k, v;  ///< [s, b, n or g, d], unit stride in the last dimension
  static auto members(auto& x) { return std::tie(x.q, x.k, x.v); }
};

/// Splits mixed [s, b, groups·(r + 2)·d], in which each query group holds its r heads of q, then k,
/// then v. Rotates q and k unless `rotation` is null. On the CPU, q and k are rotated directly from
/// the mixed tensor, unrotated parts are views of it, and the backward pass writes one mixed
/// gradient.
QueryKeyValue split_query_key_value(const at::Tensor& mixed, std::int64_t groups,
                                    std::int64_t head_dim, const Rotation* rotation);

}  // namespace megatron
