// Cross entropy over rows of logits. The CPU runs our own kernels; other devices run ATen's
// operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace megatron {

/// Logits of a range of the vocabulary, and labels in the whole vocabulary. `logits` is [tokens, v]
/// with unit column stride; its column 0 is the vocabulary entry `first`. `labels` is int64
/// [tokens].
struct LabelledLogits {
  at::Tensor logits, labels;
  std::int64_t first = 0;
  std::int64_t vocab_size = 0;  ///< size of the whole vocabulary
  static auto members(auto& r) { return std::tie(r.logits, r.labels, r.first, r.vocab_size); }
};

/// Writes lse [tokens] = log Σ exp(logits), which is −∞ without columns, and label_logit [tokens],
/// which is 0 when the label is not among the columns. Elsewhere than on the CPU it is NaN when the
/// label is outside the vocabulary; on the CPU the caller checks labels.
void cross_entropy_statistics(const LabelledLogits& rows, at::Tensor lse, at::Tensor label_logit);

/// Writes gradient [tokens, v] = (exp(logits − lse) − [column is the label])·mask·scale, rounded
/// once. `mask` is [tokens]; `scale` is a scalar of the logits' dtype. `gradient` may be the
/// logits themselves. The contents of the logits are undefined afterwards.
void cross_entropy_gradient(const LabelledLogits& rows, const at::Tensor& lse,
                            const at::Tensor& mask, const at::Tensor& scale, at::Tensor gradient);

}  // namespace megatron
