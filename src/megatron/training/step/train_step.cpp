#include "megatron/training/step/train_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>
#include <vector>

#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/pipeline/overlapped_comm.h"
#include "megatron/training/step/router_step.h"

namespace megatron {

double loss_divisor(const TrainStepContext& context) {
  return context.weights.data_parallel().averages ? 1.0 / static_cast<double>(context.rank.cp.size)
                                                  : static_cast<double>(context.rank.dp.size);
}

std::vector<Microbatch> fetch_microbatches(const TrainStepContext& context,
                                           const TrainStepOptions& options) {
  const auto timing = context.timers.scope("batch-generator", 2);
  std::vector<Microbatch> batch = next_step(context.source, options.num_microbatches);
  const Axis& dp = context.rank.dp;
  // Ordinal of the first sample of a microbatch, counted over all data-parallel ranks.
  std::int64_t first = options.first_ordinal;
  for (Microbatch& microbatch : batch) {
    microbatch = context_slice(std::move(microbatch), context.rank.cp.rank, context.rank.cp.size);
    const std::int64_t samples = microbatch.num_samples();
    if (!microbatch.sample_ordinals.defined())
      microbatch.sample_ordinals = at::arange(dp.rank * samples, (dp.rank + 1) * samples,
                                              microbatch.first_field().options().dtype(at::kLong));
    microbatch.sample_ordinals = microbatch.sample_ordinals + first;
    first += samples * dp.size;
  }
  return batch;
}

namespace {

/// Returns the initial gradient of backward: the loss scale divided by the loss normalizer. The
/// loss of a microbatch is the mean over its `tokens`, which the ranks of cp share, and that of a
/// step the mean over its microbatches.
at::Tensor gradient_scale(const TrainStepContext& context, const TrainStepOptions& options,
                          const at::Tensor& tokens) {
  const at::Tensor scale = context.optimizer.loss_scale();
  if (options.calculate_per_token_loss) return scale;
  return scale * (tokens.clamp_min(1) *
                  (static_cast<double>(options.num_microbatches) * loss_divisor(context)))
                     .reciprocal();
}

/// Returns whether every forward of a rank is directly followed by its backward.
bool alternates_forward_backward(const Schedule& schedule) {
  const std::vector<ScheduleStep>& steps = schedule.ranks.front();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if ((steps[i].kind == StepKind::forward) != (i % 2 == 0)) return false;
  }
  return true;
}

/// Returns whether forward may compute the loss gradients. A single rank writes the gradient of the
/// output weight in forward, so that each backward must follow at once. Several ranks keep the
/// gradient of the logits until backward: one for a joined pair is allowed, but not one for each
/// microbatch (GPipe).
bool computes_loss_gradients_in_forward(const TrainStepContext& context, const Schedule& schedule) {
  return context.rank.pp.size == 1 ? alternates_forward_backward(schedule)
                                   : max_pending_losses(schedule) <= 2;
}

/// Attaches the gradients of the auxiliary losses and, so that forward can compute the loss
/// gradients, the loss-gradient scale to each microbatch if the schedule allows it.
std::vector<Microbatch> attach_loss_gradient_scales(const TrainStepContext& context,
                                                    const TrainStepOptions& options,
                                                    std::vector<Microbatch> batch) {
  attach_aux_loss_gradients(context, options, batch);
  if (!computes_loss_gradients_in_forward(context,
                                          context.pipeline.training_schedule(std::ssize(batch))))
    return batch;
  for (Microbatch& microbatch : batch)
    microbatch.tensors["loss_gradient"] =
        gradient_scale(context, options, microbatch.num_tokens().to(at::kDouble));
  return batch;
}

/// Sums the losses over the ranks of an axis.
void all_reduce_losses(const Axis& axis, StepLosses& losses) {
  if (axis.size == 1) return;
  const at::Tensor both = at::cat({losses.sums, losses.tokens});
  all_reduce_(axis, both, "losses");
  const std::int64_t count = losses.sums.numel();
  losses = {both.narrow(0, 0, count), both.narrow(0, count, count)};
}

/// Measures the schedule's steps as timers of level 2 and forwards the notifications. The timers of
/// two joined steps both run for the whole pair.
class ScheduleStepTimers : public StepListener {
 public:
  ScheduleStepTimers(Timers& timers, StepListener* next) : timers_(timers), next_(next) {}
  void begin(const ScheduleStep& step) override {
    scope_of(step).emplace(
        timers_, step.kind == StepKind::forward ? "forward-compute" : "backward-compute", 2);
    if (next_ != nullptr) next_->begin(step);
  }
  void end(const ScheduleStep& step) override {
    if (next_ != nullptr) next_->end(step);
    scope_of(step).reset();
  }
  void posted(const ScheduleStep& message) override {
    if (next_ != nullptr) next_->posted(message);
  }
  void begin_wait(const ScheduleStep& receive) override {
    if (next_ != nullptr) next_->begin_wait(receive);
  }
  void end_wait(const ScheduleStep& receive) override {
    if (next_ != nullptr) next_->end_wait(receive);
  }

 private:
  std::optional<Timers::Scope>& scope_of(const ScheduleStep& step) {
    return step.kind == StepKind::forward ? forward_ : backward_;
  }

  Timers& timers_;
  StepListener* next_;
  std::optional<Timers::Scope> forward_, backward_;
};

}  // namespace

std::optional<HybridContextSummary> hybrid_context_of(const std::vector<Microbatch>& batch) {
  const HybridContext* hybrid = batch.front().hybrid();
  return hybrid != nullptr ? std::optional(hybrid->step) : std::nullopt;
}

StepLosses forward_backward(const TrainStepContext& context, const TrainStepOptions& options,
                            const std::vector<Microbatch>& batch) {
  const auto timing = context.timers.scope("forward-backward", 1);
  const at::Tensor scale = context.optimizer.loss_scale();
  const auto num_microbatches = std::ssize(batch);
  const at::Tensor empty = at::zeros({num_microbatches}, scale.options());
  StepLosses losses{empty, empty.clone()};
  const auto on_loss = [&](std::size_t microbatch, const StepOutput& output) {
    const auto index = static_cast<std::int64_t>(microbatch);
    losses.sums[index].copy_(output.loss_sum.detach());
    losses.tokens[index].copy_(output.count);
    return gradient_scale(context, options, batch[microbatch].num_tokens().to(at::kDouble));
  };
  const std::vector<Microbatch> batch_with_scales =
      attach_loss_gradient_scales(context, options, batch);
  ScheduleStepTimers timed(context.timers, context.steps);
  context.weights.zero_gradients(num_microbatches);
  begin_router_step(context.model);
  run_schedule(context.pipeline.training_schedule(num_microbatches),
               {context.model, context.weights, context.rank.pp,
                overlapped_pair_of({&context.rank.tp, &context.rank.tp_cp, &context.rank.etp_ep})},
               {.batch = batch_with_scales,
                .training = true,
                .on_loss = on_loss,
                .listener = &timed,
                .num_partially_recomputed = context.pipeline.options().num_partially_recomputed});
  {
    const auto sync = context.timers.scope("all-grads-sync", 1);
    context.weights.finalize_gradients();
  }
  all_reduce_losses(context.rank.dp_cp, losses);
  all_reduce_losses(context.rank.pp, losses);  // nonzero only on the last stage
  if (!options.calculate_per_token_loss) return losses;
  for (const ParamBucket& bucket : context.weights.buckets()) {
    if (bucket.kept_grad().defined())
      at::Tensor(bucket.kept_grad()).div_(losses.tokens.sum().clamp_min(1));
  }
  return losses;
}

namespace {

/// Measures the optimizer's phases as timers of level 1.
class OptimizerTimers : public StepTimers {
 public:
  explicit OptimizerTimers(Timers& timers) : timers_(timers) {}
  void begin(const char* phase) override { scope_.emplace(timers_, phase, 1); }
  void end(const char* /*phase*/) override { scope_.reset(); }

 private:
  Timers& timers_;
  std::optional<Timers::Scope> scope_;
};

}  // namespace

void update_weights(const TrainStepContext& context, const TrainStepOptions& options,
                    const StepLosses& losses) {
  const auto timing = context.timers.scope("optimizer", 1);
  OptimizerTimers optimizer_timers(context.timers);
  StepOptions update = options.update;
  update.timers = &optimizer_timers;
  if (options.check_for_nan)
    update.found_inf = at::isfinite(losses.sums).logical_not().any().to(at::kDouble);
  context.weights.commit_gradients();
  context.optimizer.queue_step(update);
}

TrainStepResult read_step(const TrainStepContext& context, const TrainStepOptions& options,
                          const StepLosses& losses) {
  const at::Tensor numbers =
      at::cat({losses.sums, losses.tokens, context.optimizer.step_stats()}).cpu();
  const double* sums = numbers.const_data_ptr<double>();
  const std::int64_t num_microbatches = losses.sums.numel();
  const double* tokens = sums + num_microbatches;
  TrainStepResult result;
  result.microbatch_losses.assign(sums, tokens);
  for (std::int64_t i = 0; i < num_microbatches; ++i) {
    result.loss_sum += sums[i];
    result.tokens += tokens[i];
  }
  result.update = context.optimizer.result(tokens + num_microbatches);
  result.routing = finish_router_step(context, options, result.update.applied);
  return result;
}

}  // namespace megatron
