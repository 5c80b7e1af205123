#include "megatron/optimizer/gradient_summary.h"

#include <cmath>

#include "kernels/cpu/optimizer_kernels.h"
#include "megatron/optimizer/cpu_tensors.h"

namespace megatron {
namespace {

/// One number per parameter: the sum of `measure(typed gradient pointer, count)` over its chunks, in order.
template <class Number, class Measure>
std::vector<Number> per_parameter(const std::vector<Parameter*>& parameters, const std::vector<Chunk>& chunks, const Measure& measure) {
  std::vector<Number> partial(chunks.size());
  for_each_parallel(chunks.size(), [&](std::size_t i) {
    const Chunk& chunk = chunks[i];
    const at::Tensor& grad = parameters[chunk.parameter]->grad();
    with_scalar_type(grad, [&]<class T>() { partial[i] = measure(elements<T>(grad) + chunk.begin, chunk.count); });
  });
  std::vector<Number> result(parameters.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) result[chunks[i].parameter] += partial[i];
  return result;
}

std::int64_t num_padding_elements(const Parameter& parameter) {
  std::int64_t count = num_elements(parameter.local_shape());
  for (const Box& box : parameter.sharding().boxes(parameter.axis())) count -= num_elements(box.shape);
  return count;
}

}  // namespace

GradientSummary summarize_gradients(const std::vector<Parameter*>& parameters, const std::vector<Chunk>& chunks, bool count_zeros) {
  GradientSummary summary;
  const auto squares = per_parameter<double>(parameters, chunks, [](const auto* grad, std::int64_t n) { return kernels::sum_of_squares(grad, n); });
  double sum = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    sum += squares[i];
    if (!std::isfinite(squares[i]) && summary.non_finite_parameter.empty()) summary.non_finite_parameter = parameters[i]->name();
  }
  summary.norm = std::sqrt(sum);
  if (!count_zeros) return summary;
  const auto zeros = per_parameter<std::int64_t>(parameters, chunks, [](const auto* grad, std::int64_t n) { return kernels::count_zeros(grad, n); });
  for (std::size_t i = 0; i < parameters.size(); ++i) summary.num_zeros += zeros[i] - num_padding_elements(*parameters[i]);
  return summary;
}

double clip_factor(double norm, double clip_grad) {
  const double factor = clip_grad > 0 ? clip_grad / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}

}  // namespace megatron
