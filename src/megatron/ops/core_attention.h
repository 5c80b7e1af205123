// Attention of queries over keys and values: softmax(scale·q·kᵀ + mask)·v with everything that
// later layers ask of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "megatron/ops/kv_cache.h"
#include "megatron/ops/random_site.h"

namespace megatron {

struct AttentionOptions {
  bool causal = true;
  std::array<std::int64_t, 2> window{-1,
                                     -1};  ///< keys seen left and right of a query; −1 = unlimited
  double scale = 1;
  double softcap = 0;  ///< > 0: scores become cap·tanh(score / cap) (Gemma 2)
  at::Tensor
      alibi_slopes;  ///< [n] or undefined: adds slope·(k position − q position) (Press et al. 2022)
  at::Tensor
      document_ids;  ///< int32 [b, s] or undefined: a query sees keys of its own document only
  std::int64_t q_start = 0;     ///< position of the first query
  std::int64_t k_start = 0;     ///< position of the first key
  std::int64_t first_head = 0;  ///< of q, in the unsharded model
  DropoutSite dropout;  ///< element = flat index in [n, q, k] of the unsharded per-sample tensor
};

/// q [sq, b, n, d], k [sk, b, g, d], v [sk, b, g, dv], or their gradients; n is a multiple of g.
struct AttentionInputs {
  at::Tensor q, k, v;
};

struct AttentionResult {
  at::Tensor out;  ///< [sq, b, n·dv], the dtype of q
  at::Tensor
      lse;  ///< [b, n, sq] float: log Σ exp of the scores; undefined on an accelerator's fused path
};

/// q [sq, b, n, d], k [sk, b, g, d], v [sk, b, g, dv] with n a multiple of g (grouped queries).
/// Memory O(sequence): scores exist for one block at a time, and backward draws the same dropout
/// mask again. The CPU's own kernels compute float32 and 16 bits (fused_attention.h); an
/// accelerator's fused kernel is used where it fits (no dropout, no window, equal head dimensions);
/// the rest is products of blocks of queries, for 16 bits in float32 and rounded once.
AttentionResult core_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& options);

}  // namespace megatron
