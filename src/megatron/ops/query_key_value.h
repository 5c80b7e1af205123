// Queries, keys and values of the fused projection, each in the form attention reads.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/row_operations.h"

namespace megatron {

struct QueryKeyValue {
  at::Tensor q, k, v;  ///< [s, b, n or g, d]; unit last stride
};

/// Splits mixed [s, b, groups·(r + 2)·d], where a query group's rows are its r heads of q, k and v,
/// and rotates q and k unless `rotation` is null. On the CPU q and k are rotated straight from the
/// mixed tensor, what need not be moved is a view of it, and the backward pass writes one mixed
/// gradient.
QueryKeyValue split_query_key_value(const at::Tensor& mixed, std::int64_t groups,
                                    std::int64_t head_dim, const Rotation* rotation);

}  // namespace megatron
