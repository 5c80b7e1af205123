// The evaluations of a run: when one is due, over which samples, and what is printed of it.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "megatron/base/progress_bar.h"
#include "megatron/config/evaluation_plan.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/step_reporter.h"

namespace megatron {

class Validator {
 public:
  /// `stop` is asked before each microbatch; an evaluation cut off so is made anew by the run that
  /// resumes.
  Validator(Trainer& trainer, StepReporter& reporter, std::ostream& out, ProgressBar& bar,
            std::function<bool()> stop);

  /// Evaluates every validation set if the iteration just made, or the one resumed at, asks for it.
  void evaluate_if_due();
  /// The evaluations at the end of a run: every validation set and the test set.
  void evaluate_at_end();

 private:
  bool is_due() const;
  std::int64_t samples_per_evaluation() const;
  std::int64_t first_sample(const EvaluationSet& set) const;
  void evaluate_valid(const std::string& where);
  /// The loss from `first_sample` on; nothing when stopped.
  std::optional<double> evaluate_set(const EvaluationSet& set, std::int64_t first_sample);
  void report(const EvaluationSet& set, std::string_view split, const std::string& where,
              double loss);

  Trainer& trainer_;
  StepReporter& reporter_;
  std::ostream& out_;
  ProgressBar& bar_;
  std::function<bool()> stop_;
  EvaluationPlan plan_;
};

}  // namespace megatron
