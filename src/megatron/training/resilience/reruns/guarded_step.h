// Runs a training step under the rerun state machine. It validates results before the update, runs
// the step again when a result is suspicious, and reports the op at fault and saves the microbatch
// to a file.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "megatron/training/resilience/non_finite.h"
#include "megatron/training/resilience/reruns/rerun_state_machine.h"
#include "megatron/training/run/training_state.h"
#include "megatron/training/step/train_step.h"

namespace megatron {

struct TrainingPlan;

class GuardedStep {
 public:
  struct Outcome {
    TrainStepResult step = {};
    /// If set, the step was not applied and the run must stop with this code.
    std::optional<int> exit_code = {};
    bool save = false;  ///< save the state before the step as a checkpoint before stopping
  };

  /// Restores state.rerun_state. UserError when the tracker file cannot be written. Collective over
  /// the world.
  GuardedStep(const TrainingPlan& plan, TrainingState& state, std::ostream& out);

  /// Runs one step. With reruns disabled, and in the first step of a run (which has no earlier
  /// state to return to), a non-finite result throws NonFiniteError after its microbatch is saved.
  Outcome run(const TrainStepContext& context, const TrainStepOptions& options);

 private:
  /// The current step.
  struct Step {
    const TrainStepContext& context;
    const TrainStepOptions& options;
    const std::vector<Microbatch>& batch;
  };
  struct Results {
    std::vector<double> losses;  ///< Σloss of each microbatch
    double grad_norm = 0;
  };

  bool reads_before_update() const;
  /// Returns whether the flag is set on any rank. Collective over the world if ranks may differ.
  bool any_rank(bool flag) const;
  /// Drives the state machine through the step, whose first run gave `results`, and runs the step
  /// again as often as the machine requests.
  void validate_and_rerun(const Step& step, Results results, Outcome& outcome);
  void validate(const Results& results, const TrainStepOptions& options);
  void stop(const Step& step, const Results& results, const RerunStateMachine::Verdict& verdict,
            Outcome& outcome);
  std::string explanation(const Step& step, const Results& results);
  /// Returns the diagnosis from the rank that has the suspect microbatch, with the path of the
  /// saved file; identical on every rank.
  std::string diagnosis_text(const SuspectMicrobatch& suspect, const std::string& cause);
  [[noreturn]] void throw_diverged(const Step& step, const TrainStepResult& result);

  const TrainingPlan& plan_;
  TrainingState& state_;
  std::ostream& out_;
  RerunStateMachine machine_;
  std::int64_t first_iteration_;
  bool may_differ_ = false;  ///< whether ranks may come to different verdicts in this step
};

}  // namespace megatron
