// Fused output projection and cross entropy. Logits exist for one chunk of tokens at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "megatron/params/parameter.h"

namespace megatron {

/// How many tokens have logits at a time. Both numbers depend on the shapes alone.
struct LogitBlocks {
  std::int64_t block_tokens = 0;  ///< whose logit gradients exist together
  std::int64_t chunk_tokens = 0;  ///< whose logits exist together
};
/// Returns the blocks of linear_cross_entropy() for `tokens` tokens of dtype `type`. `local` is the
/// padded vocabulary of a rank.
LogitBlocks logit_blocks(std::int64_t tokens, std::int64_t local, c10::ScalarType type);

/// The result of linear_cross_entropy().
struct TokenLoss {
  /// Differentiable scalar Σ mask·(−log p(label)); float32 for 16-bit inputs.
  at::Tensor loss_sum;
  /// [tokens] in the dtype of loss_sum, unmasked. Differentiable unless the loss gradient was known
  /// in forward.
  at::Tensor token_losses;
};

/// The gradient of loss_sum that backward will receive, when forward already knows it. The gradient
/// of the logits is then computed in forward and the logits are not computed a second time.
struct LossGradient {
  at::Tensor value;  ///< scalar; undefined when unknown, and backward then recomputes the logits
  /// Backward runs before the next contribution to the weight, so forward may write the weight's
  /// gradient.
  bool accumulates_in_forward = false;
};

/// The weight [padded vocabulary, h] of a projection onto the vocabulary, and its bias [padded
/// vocabulary] or null, split alike. Padded rows, past the global ones, are outside the softmax.
/// With softcap c > 0 the logits become c·tanh(logit / c).
struct OutputWeights {
  OutputWeights(Parameter& own_weight, Parameter* own_bias = nullptr)
      : weight(own_weight), bias(own_bias) {}
  Parameter& weight;
  Parameter* bias;
  double softcap = 0;
};

/// Computes the cross entropy of hidden [tokens, h] · weightᵀ + bias against int64 labels [tokens].
/// `mask` is float32 [tokens].
///
/// For 16-bit inputs the logits, the softmax and the losses are float32, and the gradient of the
/// logits is rounded once, after it has been multiplied by the gradient of loss_sum. A known loss
/// gradient does not change any bit. Throws InternalError when backward receives another gradient
/// than announced.
///
/// Collective over the weight's axis. Each rank has the logits of its rows of the vocabulary. The
/// gradient of `hidden` is a partial sum over the ranks, so copy_to_tensor_parallel_region or
/// gather_from_sequence_parallel_region must come before.
TokenLoss linear_cross_entropy(const at::Tensor& hidden, const OutputWeights& weights,
                               const at::Tensor& labels, const at::Tensor& mask,
                               const LossGradient& loss_gradient = {});

}  // namespace megatron
