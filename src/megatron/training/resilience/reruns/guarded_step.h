// A training step under the rerun state machine: results are checked before they count, the step
// runs again when one is suspicious, and what was found is told, with the op at fault and the
// microbatch in a file.
#pragma once

#include <iosfwd>
#include <optional>
#include <vector>

#include "megatron/training/loop/train_step.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/resilience/non_finite.h"
#include "megatron/training/resilience/reruns/rerun_state_machine.h"

namespace megatron {

class GuardedStep {
 public:
  struct Outcome {
    TrainStepResult step = {};
    std::optional<int> exit_code =
        {};             ///< set: the step did not count and the run stops with this code
    bool save = false;  ///< first with a checkpoint of the state before the step
  };

  /// Takes up trainer.rerun_state. UserError when the tracker file cannot be written.
  GuardedStep(Trainer& trainer, std::ostream& out);

  /// Runs one step. Throws NonFiniteError, its microbatch saved, with reruns disabled and in the
  /// first step of a run, before which there is nothing to go back to.
  Outcome run(const TrainStepContext& context, const TrainStepOptions& options);

 private:
  /// The step at hand.
  struct Step {
    const TrainStepContext& context;
    const TrainStepOptions& options;
    const std::vector<Microbatch>& batch;
  };
  struct Results {
    std::vector<double> losses;  ///< Σ of each microbatch
    double grad_norm = 0;
  };

  bool reads_before_update() const;
  /// Takes the machine through the step, whose first run gave `results`; runs it again as the
  /// machine asks.
  void validate_and_rerun(const Step& step, Results results, Outcome& outcome);
  void validate(const Results& results, const TrainStepOptions& options);
  void stop(const Step& step, const Results& results, const RerunStateMachine::Verdict& verdict,
            Outcome& outcome);
  std::string explanation(const Step& step, const Results& results);
  /// What the rank that has the suspect says of it, with where it is saved; the same on every rank.
  std::string diagnosis_text(const SuspectMicrobatch& suspect, const std::string& cause);
  [[noreturn]] void throw_diverged(const Step& step, const TrainStepResult& result);

  Trainer& trainer_;
  std::ostream& out_;
  RerunStateMachine machine_;
  std::int64_t first_iteration_;
};

}  // namespace megatron
