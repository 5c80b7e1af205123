#include "megatron/training/train_step.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "megatron/training/non_finite.h"

namespace megatron {
namespace {

/// Gives the samples of the step their coordinates: ordinals first_ordinal, first_ordinal + 1, …
std::vector<Microbatch> fetch(const TrainStepParts& parts, const TrainStepOptions& options) {
  const auto timing = parts.timers.scope("batch-generator", 2);
  std::vector<Microbatch> batch;
  std::int64_t ordinal = options.first_ordinal;
  for (std::int64_t i = 0; i < options.num_microbatches; ++i) {
    Microbatch& microbatch = batch.emplace_back(parts.source.next());
    const std::int64_t samples = microbatch.at("tokens").size(0);
    microbatch.sample_ordinals = at::arange(ordinal, ordinal + samples, at::kLong);
    ordinal += samples;
  }
  return batch;
}

StepOutput forward(const TrainStepParts& parts, const Microbatch& microbatch) {
  const auto timing = parts.timers.scope("forward-compute", 2);
  return parts.model.forward_step(microbatch, /*training=*/true);
}

void backward(const TrainStepParts& parts, const StepOutput& output, double scale) {
  const auto timing = parts.timers.scope("backward-compute", 2);
  output.loss_sum.backward(at::scalar_tensor(scale, output.loss_sum.options()));
}

double gradient_scale(const TrainStepOptions& options, double tokens) {
  if (options.calculate_per_token_loss) return 1;
  return 1 / (std::max(tokens, 1.0) * static_cast<double>(options.num_microbatches));
}

void forward_backward(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch, TrainStepResult& result) {
  const auto timing = parts.timers.scope("forward-backward", 1);
  parts.weights.begin_gradients();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const StepOutput output = forward(parts, batch[i]);
    const double loss_sum = output.loss_sum.item<double>(), tokens = output.count.item<double>();
    if (options.check_for_nan && !std::isfinite(loss_sum)) throw non_finite_loss(parts, options, batch, i, loss_sum);
    backward(parts, output, gradient_scale(options, tokens));
    result.loss_sum += loss_sum;
    result.tokens += tokens;
  }
  parts.weights.finish_gradients();
  if (!options.calculate_per_token_loss) return;
  for (const ParamBucket& bucket : parts.weights.buckets()) bucket.grad.div_(std::max(result.tokens, 1.0));
}

}  // namespace

TrainStepResult train_step(const TrainStepParts& parts, const TrainStepOptions& options) {
  TrainStepResult result;
  const std::vector<Microbatch> batch = fetch(parts, options);
  forward_backward(parts, options, batch, result);
  const auto timing = parts.timers.scope("optimizer", 1);
  result.update = parts.optimizer.step(options.update);
  if (!result.update.applied && options.check_for_nan) throw non_finite_gradient(parts, options, batch, result.update.non_finite_parameter);
  return result;
}

}  // namespace megatron
