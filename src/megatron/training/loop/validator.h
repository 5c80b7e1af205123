// Runs the evaluations of a training run: decides when one is due and on which samples, computes
// the loss without dropout and without gradients, and reports it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "megatron/config/evaluation_plan.h"
#include "megatron/training/feeding/training_data.h"
#include "megatron/training/observability/step_reporter.h"
#include "megatron/training/resilience/section_watch.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;

struct ValidationContext {
  const TrainingData& data;
  Timers& timers;
  SectionWatch& sections;
  StepReporter& reporter;
};

class Validator {
 public:
  /// Evaluations count samples in `state.progress`. `stop` is called before each pass, and must
  /// return the same value on all ranks. An interrupted evaluation is repeated from its start by
  /// the resumed run.
  Validator(const TrainingPlan& plan, TrainingState& state, const ValidationContext& context,
            std::function<bool()> stop);

  /// Evaluates every validation set if an evaluation is due after the current iteration, or before
  /// the first.
  void evaluate_if_due();
  /// Evaluates every validation set and the test set at the end of a run.
  void evaluate_at_end();

 private:
  bool is_due() const;
  std::int64_t samples_per_evaluation() const;
  std::int64_t first_sample(const EvaluationSet& set) const;
  void evaluate_valid(const std::string& where);
  /// Returns Σsum / Σcount of each loss over the set's samples from `first_sample` on, on every
  /// data-parallel rank; nullopt when interrupted. Collective over the world.
  std::optional<NamedLosses> evaluate_set(const EvaluationSet& set, std::int64_t first_sample);

  const TrainingPlan& plan_;
  TrainingState& state_;
  const ValidationContext context_;
  std::function<bool()> stop_;
  EvaluationPlan evaluations_;
};

}  // namespace megatron
