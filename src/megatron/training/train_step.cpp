#include "megatron/training/train_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <vector>

#include "megatron/parallel/collectives.h"
#include "megatron/training/non_finite.h"

namespace megatron {

std::vector<Microbatch> fetch_microbatches(const TrainStepParts& parts, const TrainStepOptions& options) {
  const auto timing = parts.timers.scope("batch-generator", 2);
  std::vector<Microbatch> batch;
  const Axis& dp = parts.rank.dp;
  std::int64_t first = options.first_ordinal;  // of the ranks' microbatches that are made at the same time
  for (std::int64_t i = 0; i < options.num_microbatches; ++i) {
    Microbatch& microbatch = batch.emplace_back(parts.source.next());
    const std::int64_t samples = microbatch.at("tokens").size(0);
    if (!microbatch.sample_ordinals.defined())
      microbatch.sample_ordinals = at::arange(dp.rank * samples, (dp.rank + 1) * samples, microbatch.at("tokens").options().dtype(at::kLong));
    microbatch.sample_ordinals = microbatch.sample_ordinals + first;
    first += samples * dp.size;
  }
  return batch;
}

namespace {

StepOutput forward(const TrainStepParts& parts, const Microbatch& microbatch) {
  const auto timing = parts.timers.scope("forward-compute", 2);
  return parts.model.forward_step(microbatch, /*training=*/true);
}

/// What backward starts from: the loss scale over what the loss is averaged over.
at::Tensor gradient_scale(const TrainStepParts& parts, const TrainStepOptions& options, const at::Tensor& tokens) {
  const at::Tensor scale = parts.optimizer.loss_scale();
  if (options.calculate_per_token_loss) return scale;
  const std::int64_t ranks = parts.weights.data_parallel().averages ? 1 : parts.rank.dp_cp.size;
  return scale * (tokens.clamp_min(1) * static_cast<double>(options.num_microbatches * ranks)).reciprocal();
}

void backward(const TrainStepParts& parts, const StepOutput& output, const at::Tensor& scale) {
  const auto timing = parts.timers.scope("backward-compute", 2);
  output.loss_sum.backward(scale.to(output.loss_sum.scalar_type()));
}

/// Adds up what the data-parallel ranks counted.
void add_ranks(const Axis& axis, StepLosses& losses) {
  if (axis.size == 1) return;
  const at::Tensor both = at::cat({losses.sums, losses.tokens});
  all_reduce_(axis, both, "losses");
  const std::int64_t count = losses.sums.numel();
  losses = {both.narrow(0, 0, count), both.narrow(0, count, count)};
}

}  // namespace

StepLosses forward_backward(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch) {
  const auto timing = parts.timers.scope("forward-backward", 1);
  const at::Tensor scale = parts.optimizer.loss_scale();
  const at::Tensor empty = at::zeros({options.num_microbatches}, scale.options());
  StepLosses losses{empty, empty.clone()};
  parts.weights.begin_gradients(options.num_microbatches);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const StepOutput output = forward(parts, batch[i]);
    const auto index = static_cast<std::int64_t>(i);
    losses.sums[index].copy_(output.loss_sum.detach());
    losses.tokens[index].copy_(output.count);
    backward(parts, output, gradient_scale(parts, options, losses.tokens[index]));
  }
  parts.weights.finish_gradients();
  add_ranks(parts.rank.dp_cp, losses);
  if (!options.calculate_per_token_loss) return losses;
  for (const ParamBucket& bucket : parts.weights.buckets()) bucket.grad.div_(losses.tokens.sum().clamp_min(1));
  return losses;
}

namespace {

/// The optimizer's phases as timers of level 1.
class TimedPhases : public StepPhases {
 public:
  explicit TimedPhases(Timers& timers) : timers_(timers) {}
  void begin(const char* phase) override { scope_.emplace(timers_, phase, 1); }
  void end(const char* /*phase*/) override { scope_.reset(); }

 private:
  Timers& timers_;
  std::optional<Timers::Scope> scope_;
};

}  // namespace

void update_weights(const TrainStepParts& parts, const TrainStepOptions& options, const StepLosses& losses) {
  const auto timing = parts.timers.scope("optimizer", 1);
  TimedPhases phases(parts.timers);
  StepOptions update = options.update;
  update.phases = &phases;
  if (options.check_for_nan) update.veto = at::isfinite(losses.sums).logical_not().any().to(at::kDouble);
  parts.optimizer.queue_step(update);
}

TrainStepResult read_step(const TrainStepParts& parts, const TrainStepOptions& options, const StepLosses& losses) {
  const at::Tensor numbers = at::cat({losses.sums, losses.tokens, parts.optimizer.findings()}).cpu();
  const double* sums = numbers.const_data_ptr<double>();
  const double* tokens = sums + options.num_microbatches;
  TrainStepResult result;
  result.microbatch_losses.assign(sums, tokens);
  for (std::int64_t i = 0; i < options.num_microbatches; ++i) {
    result.loss_sum += sums[i];
    result.tokens += tokens[i];
  }
  result.update = parts.optimizer.result(tokens + options.num_microbatches);
  return result;
}

TrainStepResult train_step(const TrainStepParts& parts, const TrainStepOptions& options) {
  const std::vector<Microbatch> batch = fetch_microbatches(parts, options);
  const StepLosses losses = forward_backward(parts, options, batch);
  update_weights(parts, options, losses);
  TrainStepResult result = read_step(parts, options, losses);
  if (options.check_for_nan && !result.update.applied) throw non_finite_step(parts, options, batch, result);
  return result;
}

}  // namespace megatron
