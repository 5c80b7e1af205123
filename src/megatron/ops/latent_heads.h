// The queries, keys and values of multi-latent attention (DeepSeek-V2, 2024, §2.1): each head's
// projections of the latents, and a rotated key that all heads share.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/core_attention.h"
#include "megatron/ops/rotary.h"

namespace megatron {

/// Channels of a head: those of queries and keys that are not rotated, those that are, and those of
/// values.
struct LatentHeadDims {
  std::int64_t qk = 0, rotated = 0, v = 0;
};

/// Returns q and k [s, b, n, qk + rotated] and v [s, b, n, v] from q [s, b, n·(qk + rotated)], kv
/// [s, b, n·(qk + v)] and the key k_pos [s, b, rotated]. The last channels of q, and k_pos, which
/// becomes the end of each head's key, are rotated. v is a view of kv.
AttentionInputs latent_heads(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& k_pos,
                             const LatentHeadDims& dims, const Rotation& rotation);

}  // namespace megatron
