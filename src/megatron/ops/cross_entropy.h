// Cross entropy over rows of logits, whatever their device: the CPU's own kernels, ATen's operators
// elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// Logits [tokens, v] (unit column stride) of the vocabulary's rows from `first` on, and the labels
/// int64 [tokens] of the whole vocabulary.
struct LabelledLogits {
  at::Tensor logits, labels;
  std::int64_t first = 0;
};

/// lse [tokens] = log Σ exp(logits), −∞ without columns; label_logit [tokens], 0 where the label is
/// not among the columns.
void cross_entropy_statistics(const LabelledLogits& rows, at::Tensor lse, at::Tensor label_logit);

/// gradient [tokens, v] = (exp(logits − lse) − [column is the label's])·mask·scale, rounded once;
/// it may be the logits, which are lost in any case. mask float32 [tokens], scale a scalar of the
/// logits' dtype.
void cross_entropy_gradient(const LabelledLogits& rows, const at::Tensor& lse,
                            const at::Tensor& mask, const at::Tensor& scale, at::Tensor gradient);

}  // namespace megatron
