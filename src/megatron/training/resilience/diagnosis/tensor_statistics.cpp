#include "megatron/training/resilience/diagnosis/tensor_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones_like.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "megatron/base/format.h"
#include "megatron/checkpoint/slice_math.h"
#include "megatron/config/transformer_config.h"
#include "megatron/nn/multi_latent_attention.h"

namespace megatron {
namespace {

Shape unravel(std::int64_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0; flat /= shape[dim])
    index[dim] = flat % shape[dim];
  return index;
}

}  // namespace

std::int64_t TensorStatistics::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

TensorStatistics tensor_statistics(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  TensorStatistics result{.shape = tensor.sizes().vec()};
  if (tensor.numel() == 0) return result;
  const at::Tensor bad = at::isfinite(tensor).logical_not_();
  const std::int64_t num_bad = bad.sum().item<std::int64_t>();
  at::Tensor values = tensor.detach().to(at::kDouble);
  if (num_bad > 0) {
    result.num_nan = at::isnan(tensor).sum().item<std::int64_t>();
    result.num_inf = num_bad - result.num_nan;
    result.first_bad =
        unravel(at::argmax(bad.reshape({-1}).to(at::kByte)).item<std::int64_t>(), result.shape);
    values = values.masked_fill(bad, 0);
  }
  result.max_abs = values.abs().max().item<double>();
  result.rms = std::sqrt((values * values).sum().item<double>() /
                         static_cast<double>(std::max<std::int64_t>(1, tensor.numel() - num_bad)));
  return result;
}

std::string describe(const TensorStatistics& statistics) {
  if (statistics.finite())
    return format("finite: rms %.3g, max %.3g", statistics.rms, statistics.max_abs);
  std::string counts;
  if (statistics.num_nan > 0) counts = std::to_string(statistics.num_nan) + " NaN";
  if (statistics.num_inf > 0)
    counts += (counts.empty() ? "" : " and ") + std::to_string(statistics.num_inf) + " Inf";
  const std::int64_t count = statistics.num_elements();
  if (count == 1) return counts;
  return counts + " among " + std::to_string(count) + " elements, the first at " +
         shape_text(statistics.first_bad) +
         (statistics.num_nan + statistics.num_inf == count
              ? std::string()
              : format("; the finite ones reach %.3g", statistics.max_abs));
}

std::vector<std::int64_t> non_finite_indices(const at::Tensor& tensor, std::int64_t dim) {
  const at::Tensor rows = at::isfinite(tensor.detach())
                              .logical_not_()
                              .transpose(0, dim)
                              .reshape({tensor.size(dim), -1});
  const at::Tensor bad = at::any(rows, 1);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < bad.size(0); ++i) {
    if (bad[i].item<bool>()) indices.push_back(i);
  }
  return indices;
}

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
