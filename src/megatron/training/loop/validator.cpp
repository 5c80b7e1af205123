#include "megatron/training/loop/validator.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

std::vector<Microbatch> next_microbatches(MicrobatchSource& source, const Axis& cp,
                                          std::int64_t count) {
  std::vector<Microbatch> batch = next_step(source, count);
  for (Microbatch& microbatch : batch) {
    microbatch = context_slice(std::move(microbatch), cp.rank, cp.size);
    const at::Tensor& field = microbatch.first_field();
    const std::int64_t samples =
        microbatch.packed ? microbatch.packed->num_sequences() : field.size(0);
    microbatch.sample_ordinals = at::zeros({samples}, field.options().dtype(at::kLong));
  }
  return batch;
}

}  // namespace

Validator::Validator(const TrainingPlan& plan, TrainingState& state,
                     const ValidationContext& context, std::function<bool()> stop)
    : plan_(plan),
      state_(state),
      context_(context),
      stop_(std::move(stop)),
      evaluations_(evaluation_plan(*plan.settings.training, plan.rank.dp.size)) {}

std::int64_t Validator::samples_per_evaluation() const {
  std::int64_t samples = 0;
  for (const EvaluationSet& set : context_.data.valid) samples += set.num_samples;
  return samples;
}

/// Returns whether an evaluation is due, also one that the previous run missed or did not finish:
/// the number of consumed validation samples shows how many evaluations were done.
bool Validator::is_due() const {
  const TrainingProgress& progress = state_.progress;
  return evaluations_.is_due(progress.iteration) &&
         progress.consumed_valid_samples <
             evaluations_.evaluations_until(progress.iteration) * samples_per_evaluation();
}

void Validator::evaluate_if_due() {
  TrainingProgress& progress = state_.progress;
  const bool is_start = progress.iteration == 0 && plan_.settings.training->eval_on_start;
  if (!is_start && !is_due()) return;
  const std::int64_t consumed = progress.consumed_valid_samples;
  evaluate_valid("iteration " + std::to_string(progress.iteration));
  // So the evaluations of the run have the samples that they have without --eval-on-start.
  if (is_start) progress.consumed_valid_samples = consumed;
}

void Validator::evaluate_at_end() {
  const std::string iteration = "iteration " + std::to_string(state_.progress.iteration);
  evaluate_valid(iteration + " on validation set");
  if (!context_.data.test) return;
  if (const auto losses = evaluate_set(*context_.data.test, 0))
    context_.reporter.report_evaluation("test", iteration + " on test set", *losses,
                                        context_.data.test->suffix);
}

/// Returns the first sample of the next evaluation of `set`: the set's share of the samples that
/// all sets have consumed, aligned to the start of a microbatch.
std::int64_t Validator::first_sample(const EvaluationSet& set) const {
  if (set.is_full_validation) return 0;
  const auto sets = static_cast<std::int64_t>(context_.data.valid.size());
  const std::int64_t together = evaluations_.micro_batch_size * evaluations_.data_parallel_size;
  return state_.progress.consumed_valid_samples / sets / together * together;
}

void Validator::evaluate_valid(const std::string& where) {
  const std::int64_t all = samples_per_evaluation();
  for (const EvaluationSet& set : context_.data.valid) {
    const auto losses = evaluate_set(set, first_sample(set));
    if (!losses) return;
    context_.reporter.report_evaluation("validation", where, *losses, set.suffix);
  }
  state_.progress.consumed_valid_samples += all;
}

std::optional<NamedLosses> Validator::evaluate_set(const EvaluationSet& set,
                                                   std::int64_t first_sample) {
  const PausedInterval paused(context_.timers);
  const auto timing = context_.timers.scope("evaluate");
  const std::unique_ptr<MicrobatchSource> source = set.open(first_sample);
  const SectionWatch::Evaluation evaluation(context_.sections);
  const c10::NoGradGuard no_gradients;
  const Rank& rank = plan_.rank;
  const std::vector<std::string>& names = state_.model->objective().names;
  std::vector<double> sums(2 * names.size());  // sum and count of each loss
  const auto on_loss = [&](std::size_t, const StepOutput& output) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      sums[2 * i] += output.terms[i].sum.item<double>();
      sums[2 * i + 1] += output.terms[i].count.item<double>();
    }
    return at::Tensor();
  };
  const std::int64_t group = microbatches_per_pass(rank.pp.size);
  for (std::int64_t begin = 0; begin < set.num_microbatches; begin += group) {
    if (stop_()) return std::nullopt;
    const SectionWatch::Scope section = context_.sections.enter_step();
    const std::vector<Microbatch> batch =
        next_microbatches(*source, rank.cp, std::min(group, set.num_microbatches - begin));
    if (UnitValues* values = state_.weights->unit_values()) values->begin_pass();
    run_schedule(plan_.pipeline.evaluation_schedule(static_cast<std::int64_t>(batch.size())),
                 {*state_.model, *state_.weights, rank.pp},
                 {.batch = batch, .training = false, .on_loss = on_loss});
  }
  for (const Axis* axis : {&rank.dp_cp, &rank.pp})  // nonzero only on the last stage
    sums = all_reduce_sum({*axis, rank.device}, sums, "evaluation");
  NamedLosses losses;
  for (std::size_t i = 0; i < names.size(); ++i)
    losses.emplace_back(names[i], sums[2 * i] / std::max(sums[2 * i + 1], 1.0));
  return losses;
}

}  // namespace megatron
