// Scaled dot-product attention, softmax(scale·q·kᵀ + mask)·v, with causal masks, windows, chunks,
// softcap, biases of positions, sinks, packed documents, grouped queries and dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "megatron/ops/dropout.h"

namespace megatron {

/// Options of core_attention(). The defaults give plain causal attention.
struct AttentionOptions {
  bool causal = true;
  /// Keys that a query sees to its left and right; −1 means unlimited.
  std::array<std::int64_t, 2> window{-1, -1};
  /// If > 0, a query sees only keys of its own chunk of so many positions (Llama 4).
  std::int64_t chunk = 0;
  double scale = 1;
  double softcap = 0;  ///< if > 0, scores become cap·tanh(score / cap) (Gemma 2)
  /// [n] or undefined. Adds slope·(k position − q position) to the scores (Press et al. 2022).
  at::Tensor alibi_slopes;
  /// [n, total_q + total_k − 1] or undefined. Adds column c to the scores of keys that lie c −
  /// (total_q − 1) positions behind the query, as T5 does (Raffel et al. 2020). Differentiable.
  at::Tensor distance_bias;
  /// [n] or undefined: the score of one more key of each head, whose value is zero (Xiao et al.
  /// 2024, "attention sinks"). Differentiable.
  at::Tensor sinks;
  /// int32 [b, positions of the sequence] or undefined. A query sees only the keys of its own
  /// document.
  at::Tensor document_ids;
  /// int32 [b, positions of the keys] or undefined: the documents of keys of another sequence, as
  /// those of an encoder. Only with document_ids, which are those of the queries then.
  at::Tensor key_document_ids;
  std::int64_t q_start = 0;  ///< position of the first query
  std::int64_t k_start = 0;  ///< position of the first key
  /// Positions of the whole sequences. 0: the last query or key of the call is the last one.
  std::int64_t total_q = 0, total_k = 0;
  /// float32 [n] or undefined: attention_forward() raises it to the largest score of each head.
  at::Tensor max_scores;
  bool wants_top = false;       ///< AttentionResult::top; set by attention_forward()
  std::int64_t first_head = 0;  ///< index of q's first head in the unsharded model
  /// The random element index is the flat index in [n, total_q, total_k] of the unsharded
  /// per-sample scores.
  DropoutSite dropout;
  static auto members(auto& o) {
    return std::tie(o.causal, o.window[0], o.window[1], o.chunk, o.scale, o.softcap, o.alibi_slopes,
                    o.distance_bias, o.sinks, o.document_ids, o.key_document_ids, o.q_start,
                    o.k_start, o.total_q, o.total_k, o.wants_top, o.first_head, o.dropout);
  }
};

/// The inputs q [sq, b, n, d], k [sk, b, g, d] and v [sk, b, g, dv], or their gradients. n is a
/// multiple of g.
struct AttentionInputs {
  at::Tensor q, k, v;
  static auto members(auto& inputs) { return std::tie(inputs.q, inputs.k, inputs.v); }
};

/// The gradients of the inputs, and of AttentionOptions::distance_bias if there is one.
struct AttentionGradients : AttentionInputs {
  at::Tensor distance_bias = {};
  static auto members(auto& g) { return std::tie(g.q, g.k, g.v, g.distance_bias); }
};

struct AttentionResult {
  at::Tensor out;  ///< [sq, b, n·dv] in the dtype of q
  /// [b, n, sq] float32: log Σ exp of the scores. Undefined on the fused path of an accelerator.
  at::Tensor lse;
  at::Tensor top = {};  ///< like lse, the largest score that a query sees; undefined if not wanted
  static auto members(auto& result) { return std::tie(result.out, result.lse, result.top); }
};

/// The forward pass of attention to some of the keys. Records no gradient. The lse is defined on
/// every device.
AttentionResult attention_forward(const AttentionInputs& inputs, const AttentionOptions& options);

/// The backward pass for a part of the keys. `dout` and `result` are those of the queries' whole
/// attention, over all parts. Returns the part's contribution to dq and to the gradient of
/// distance_bias, and the gradients of its keys and values.
AttentionGradients attention_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                                      const AttentionResult& result,
                                      const AttentionOptions& options);

/// Returns the gradient of the sinks [n] from that of the result, which includes them.
at::Tensor sink_gradient(const at::Tensor& dout, const AttentionResult& result,
                         const at::Tensor& sinks);

/// Computes attention of q [sq, b, n, d] over k [sk, b, g, d] and v [sk, b, g, dv], where n is a
/// multiple of g (grouped queries).
///
/// Memory is O(sequence): scores exist for one block of queries at a time, and the backward pass
/// draws the same dropout mask again. The CPU's fused kernels compute float32 and 16-bit inputs
/// (fused_attention.h). An accelerator's fused kernel runs when it supports the options: no
/// dropout, no window, no chunks, equal head dimensions. All other cases run GEMMs over blocks of
/// queries; 16-bit inputs are computed in float32 and rounded once.
AttentionResult core_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& options);

}  // namespace megatron
