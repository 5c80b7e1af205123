#include "megatron/training/loop/validator.h"

#include <array>
#include <ostream>

#include "megatron/training/loop/evaluation.h"

namespace megatron {

Validator::Validator(Trainer& trainer, StepReporter& reporter, std::ostream& out, ProgressBar& bar,
                     std::function<bool()> stop)
    : trainer_(trainer),
      reporter_(reporter),
      out_(out),
      bar_(bar),
      stop_(std::move(stop)),
      plan_(evaluation_plan(trainer.settings.training, trainer.rank.dp.size)) {}

std::int64_t Validator::samples_per_evaluation() const {
  std::int64_t samples = 0;
  for (const EvaluationSet& set : trainer_.valid) samples += set.num_samples;
  return samples;
}

/// Returns whether an evaluation is due, also one that the previous run missed or did not finish:
/// the number of consumed validation samples shows how many evaluations were done.
bool Validator::is_due() const {
  const TrainingProgress& progress = trainer_.progress;
  return plan_.is_due(progress.iteration) &&
         progress.consumed_valid_samples <
             plan_.evaluations_until(progress.iteration) * samples_per_evaluation();
}

void Validator::evaluate_if_due() {
  if (is_due()) evaluate_valid("iteration " + std::to_string(trainer_.progress.iteration));
}

void Validator::evaluate_at_end() {
  const std::string iteration = "iteration " + std::to_string(trainer_.progress.iteration);
  evaluate_valid(iteration + " on validation set");
  if (!trainer_.test) return;
  if (const auto loss = evaluate_set(*trainer_.test, 0))
    report(*trainer_.test, "test", iteration + " on test set", *loss);
}

/// Returns the first sample of the next evaluation of `set`: the set's share of the samples that
/// all sets have consumed, aligned to the start of a microbatch.
std::int64_t Validator::first_sample(const EvaluationSet& set) const {
  if (set.is_full_validation) return 0;
  const auto sets = static_cast<std::int64_t>(trainer_.valid.size());
  const std::int64_t together = plan_.micro_batch_size * plan_.data_parallel_size;
  return trainer_.progress.consumed_valid_samples / sets / together * together;
}

void Validator::evaluate_valid(const std::string& where) {
  const std::int64_t all = samples_per_evaluation();
  for (const EvaluationSet& set : trainer_.valid) {
    const auto loss = evaluate_set(set, first_sample(set));
    if (!loss) return;
    report(set, "validation", where, *loss);
  }
  trainer_.progress.consumed_valid_samples += all;
}

std::optional<double> Validator::evaluate_set(const EvaluationSet& set, std::int64_t first_sample) {
  const PausedInterval paused(trainer_.timers);
  const auto timing = trainer_.timers.scope("evaluate");
  return evaluate({*trainer_.model, *trainer_.weights, trainer_.pipeline, trainer_.rank},
                  *set.open(first_sample), set.num_microbatches, stop_);
}

void Validator::report(const EvaluationSet& set, std::string_view split, const std::string& where,
                       double loss) {
  bar_.clear();
  out_ << trainer_.timers.report(std::array<std::string_view, 1>{"evaluate"}) << '\n';
  reporter_.report_evaluation(split, where, loss, set.suffix);
}

}  // namespace megatron
