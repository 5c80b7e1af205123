// Output projection and cross entropy in one: logits exist for a chunk of tokens at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/params/parameter.h"

namespace megatron {

struct TokenLoss {
  at::Tensor loss_sum;  ///< scalar (float32 over 16 bits), differentiable: Σ mask·(−log p(label))
  at::Tensor token_losses;  ///< [tokens] float32, detached, unmasked
};

/// The gradient of loss_sum that backward will be given, where forward knows it already: the logits
/// then serve both passes and are gone afterwards.
struct LossGradient {
  at::Tensor value;  ///< scalar; undefined: not known, and backward computes the logits again
  bool accumulates_in_forward = false;  ///< backward follows before the weight's next contribution:
                                        ///< its gradient is written in forward
};

/// hidden [tokens, h], weight [padded vocabulary, h], labels int64 [tokens], mask float32 [tokens].
/// Padded rows (past the weight's global rows) are outside the softmax. Over 16-bit inputs logits,
/// softmax and losses are float32, and the gradient of the logits is rounded once, after it was
/// multiplied by the gradient of loss_sum. A known loss gradient changes no bit; InternalError when
/// backward is given another. Collective over the weight's axis: each rank has the logits of its
/// rows of the vocabulary, and hidden's gradient is this rank's part of a sum
/// (copy_to_tensor_parallel_region or gather_from_sequence_parallel_region in front).
TokenLoss linear_cross_entropy(const at::Tensor& hidden, Parameter& weight,
                               const at::Tensor& labels, const at::Tensor& mask,
                               const LossGradient& loss_gradient = {});

}  // namespace megatron
