// A training step under the rerun state machine: results are checked before they count, the step runs again when one is suspicious, and what was
// found is told, with the op at fault and the microbatch in a file.
#pragma once

#include <iosfwd>
#include <optional>

#include "megatron/training/non_finite.h"
#include "megatron/training/reruns/rerun_state_machine.h"
#include "megatron/training/train_step.h"
#include "megatron/training/trainer.h"

namespace megatron {

class GuardedStep {
 public:
  struct Outcome {
    TrainStepResult step = {};
    bool save = false;             ///< a checkpoint is wanted of the state before the step
    std::optional<int> exit_code;  ///< set: the step did not count, the run stops
  };

  /// Takes up trainer.rerun_state. UserError when the tracker file cannot be written.
  GuardedStep(Trainer& trainer, std::ostream& out);

  /// Runs one step. NonFiniteError (whose batch is saved) with reruns disabled, and in the first step of a run, before which there is nothing to
  /// compare with.
  Outcome run(const TrainStepParts& parts, const TrainStepOptions& options);

 private:
  struct Results {
    std::vector<double> losses;  ///< Σ of each microbatch
    double grad_norm = 0;
  };

  TrainStepResult run_unguarded(const TrainStepParts& parts, const TrainStepOptions& options);
  /// Validates the first run's results and reruns as the machine asks.
  RerunStateMachine::Verdict judge(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch, Results results);
  Results run_again(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch);
  void validate(const Results& results, bool check_for_nan);
  bool reads_before_update() const;
  void stop(const RerunStateMachine::Verdict& verdict, Outcome& outcome);
  void explain_rejection(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch);
  NonFiniteError error_of(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch, const Results& results);

  Trainer& trainer_;
  std::ostream& out_;
  RerunStateMachine machine_;
  Results last_;  ///< of the run at hand
};

}  // namespace megatron
