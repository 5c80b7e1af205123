#include "megatron/training/resilience/diagnosis/attention_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>

#include <cmath>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/multi_latent_attention.h"

namespace megatron {

std::optional<NonFiniteScores> non_finite_scores(const at::Tensor& query, const at::Tensor& key,
                                                 const TransformerConfig& config) {
  const at::NoGradGuard no_grad;
  if (!at::isfinite(query).all().item<bool>() || !at::isfinite(key).all().item<bool>())
    return std::nullopt;
  const double scale = config.softmax_scale.value_or(
      config.multi_latent_attention ? latent_attention_scale(config)
                                    : 1 / std::sqrt(static_cast<double>(query.size(3))));
  const std::int64_t heads_per_group = query.size(2) / key.size(2);
  for (std::int64_t sample = 0; sample < query.size(1); ++sample) {
    for (std::int64_t head = 0; head < query.size(2); ++head) {
      const at::Tensor q = query.select(1, sample).select(1, head),
                       k = key.select(1, sample).select(1, head / heads_per_group);
      const at::Tensor scores = at::mm(q, k.t()) * scale;
      const at::Tensor hidden = at::ones_like(scores, at::kBool).triu(1);
      const TensorStatistics statistics = tensor_statistics(scores.masked_fill(hidden, 0));
      if (!statistics.finite()) return NonFiniteScores{sample, head, statistics};
    }
  }
  return std::nullopt;
}

}  // namespace megatron
