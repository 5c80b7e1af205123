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
#include "megatron/pipeline/overlapped_pair.h"
#include "megatron/training/step/attention_step.h"
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
/// loss of a microbatch is its root divided by the objective's count, over the ranks that share it,
/// and that of a step the mean over its microbatches.
at::Tensor gradient_scale(const TrainStepContext& context, const TrainStepOptions& options,
                          const Microbatch& microbatch) {
  const at::Tensor scale = context.optimizer.loss_scale();
  if (options.calculate_per_token_loss) return scale;
  const at::Tensor count = context.model.objective().count(microbatch).to(at::kDouble);
  return scale * (count.clamp_min(1) *
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

/// Returns whether forward may compute the loss gradients. They must be known then. A single rank
/// writes the gradient of the output weight in forward, so that each backward must follow at once.
/// Several ranks keep the gradient of the logits until backward: one for a joined pair is allowed,
/// but not one for each microbatch (GPipe).
bool computes_loss_gradients_in_forward(const TrainStepContext& context, const Schedule& schedule) {
  if (context.model.objective().loss) return false;
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
    microbatch.tensors["loss_gradient"] = gradient_scale(context, options, microbatch);
  return batch;
}

/// Measures the schedule's steps as timers of level 2 and forwards the notifications. The timers of
/// two joined steps both run for the whole pair.
class ScheduleStepTimers : public StepListener {
 public:
  ScheduleStepTimers(Timers& timers, StepListener* next) : timers_(timers) { next_ = next; }
  void begin(const ScheduleStep& step) override {
    scope_of(step).emplace(
        timers_, step.kind == StepKind::forward ? "forward-compute" : "backward-compute", 2);
    if (next_ != nullptr) next_->begin(step);
  }
  void end(const ScheduleStep& step) override {
    if (next_ != nullptr) next_->end(step);
    scope_of(step).reset();
  }

 private:
  std::optional<Timers::Scope>& scope_of(const ScheduleStep& step) {
    return step.kind == StepKind::forward ? forward_ : backward_;
  }

  Timers& timers_;
  std::optional<Timers::Scope> forward_, backward_;
};

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

std::optional<HybridContextSummary> hybrid_context_of(const std::vector<Microbatch>& batch) {
  const HybridContext* hybrid = batch.front().hybrid();
  return hybrid != nullptr ? std::optional(hybrid->step) : std::nullopt;
}

StepLosses forward_backward(const TrainStepContext& context, const TrainStepOptions& options,
                            const std::vector<Microbatch>& batch) {
  const auto timing = context.timers.scope("forward-backward", 1);
  const at::Tensor scale = context.optimizer.loss_scale();
  const auto num_microbatches = std::ssize(batch);
  const auto num_terms = std::ssize(context.model.objective().names);
  // Their last row holds the computed samples.
  const at::Tensor both = at::zeros({2, num_terms + 1, num_microbatches}, scale.options());
  StepLosses losses{both[0].narrow(0, 0, num_terms), both[1].narrow(0, 0, num_terms)};
  const auto on_loss = [&](std::size_t microbatch, const StepOutput& output) {
    const auto index = static_cast<std::int64_t>(microbatch);
    for (std::int64_t term = 0; term < num_terms; ++term) {
      const LossTerm& loss = output.terms[static_cast<std::size_t>(term)];
      losses.sums[term][index].copy_(loss.sum);
      losses.counts[term][index].copy_(loss.count);
    }
    const auto [samples, squared] = batch[microbatch].computed_samples();
    both[0][num_terms][index].fill_(samples);
    both[1][num_terms][index].fill_(squared);
    return gradient_scale(context, options, batch[microbatch]);
  };
  const std::vector<Microbatch> batch_with_scales =
      attach_loss_gradient_scales(context, options, batch);
  ScheduleStepTimers timed(context.timers, context.steps);
  context.weights.zero_gradients(num_microbatches);
  begin_router_step(context.model);
  begin_attention_step(context, options);
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
  all_reduce_(context.rank.dp_cp, both, "losses");
  all_reduce_(context.rank.pp, both, "losses");  // nonzero only on the last stage
  if (context.rank.cp.size == 1) losses.computed_samples = both.select(1, num_terms).sum(1);
  if (!options.calculate_per_token_loss) return losses;
  for (const ParamBucket& bucket : context.weights.buckets()) {
    if (bucket.kept_grad().defined())
      at::Tensor(bucket.kept_grad()).div_(losses.counts[0].sum().clamp_min(1));
  }
  return losses;
}

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
  std::vector<at::Tensor> parts{losses.sums.flatten(), losses.counts.flatten()};
  if (losses.computed_samples.defined()) parts.push_back(losses.computed_samples);
  parts.push_back(context.optimizer.step_stats());
  const at::Tensor numbers = at::cat(parts).cpu();
  const double *sum = numbers.const_data_ptr<double>(), *count = sum + losses.sums.numel();
  TrainStepResult result;
  result.microbatch_losses.resize(static_cast<std::size_t>(losses.sums.size(1)));
  for (const std::string& name : context.model.objective().names) {
    LossTotal& total = result.losses.emplace_back(LossTotal{.name = name});
    for (double& of_microbatch : result.microbatch_losses) {
      of_microbatch += *sum;
      total.sum += *sum++;
      total.count += *count++;
    }
  }
  if (losses.computed_samples.defined()) {
    result.computed_samples = {count[0], count[1]};
    count += 2;
  }
  result.update = context.optimizer.result(count);
  result.routing = finish_router_step(context, options, result.update.applied);
  result.max_attention_logit = finish_attention_step(context, options, result.update.applied);
  return result;
}

}  // namespace megatron
