// Saves the checkpoints of a run: at intervals, before its batch size changes, and at its end.
// Removes old checkpoints and records the progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "megatron/training/loop/training_services.h"
#include "megatron/training/observability/console.h"
#include "megatron/training/observability/progress_log.h"
#include "megatron/training/run/job_deadline.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;
struct CheckpointConfig;

class CheckpointSaver {
 public:
  /// Save times are recorded in `deadline`, which may be null. Starts progress.txt with
  /// --log-progress.
  CheckpointSaver(const TrainingPlan& plan, const TrainingState& state, TrainingServices& services,
                  const Console& console, JobDeadline* deadline);

  /// Saves when --save-interval or --non-persistent-save-interval is due. If a save fails, it
  /// prints a warning and training continues.
  void save_if_due();
  /// Saves to --save unless it is unset or already holds this iteration. Prints a warning if the
  /// save fails.
  void try_to_save();
  /// Saves at the end of a run, like try_to_save(), but throws UserError with the last good
  /// checkpoint if the save fails.
  void save_at_end();
  /// Like save_at_end(), but saves even if --save holds this iteration, because state other than
  /// the weights has changed.
  void save_again() {
    saved_iteration_ = -1;
    save_at_end();
  }
  /// Compares the replicas where --check-weight-hash-across-dp-replicas-interval is due, unless a
  /// save of this iteration has done so. Throws like check_replicas(), as the saves do instead of
  /// completing a checkpoint. Collective over data-parallel ranks.
  void check_replicas_if_due();
  /// Calculates the timeouts of sections with --calc-ft-timeouts. Collective over the world.
  void calculate_section_timeouts(bool is_at_end);

 private:
  /// Runs `save`. If it fails, prints a warning; the next save tries again.
  void warn_on_failure(const std::function<void()>& save);
  bool divides_iteration(std::optional<std::int64_t> interval) const;
  void save();
  void save_persistent(std::int64_t iteration);
  void save_non_persistent();
  void save_to(SaveFolder& folder, std::string_view timer,
               const LocalPlacement* placement = nullptr);
  bool is_replica_check_due() const;
  /// Returns what keeps weights that a fault has changed out of a checkpoint.
  std::function<void()> replica_check();
  void record_progress();

  const TrainingPlan& plan_;
  const TrainingState& state_;
  TrainingServices& services_;
  const CheckpointConfig& config_;
  const Console console_;
  JobDeadline* deadline_;
  std::unique_ptr<ProgressLog> log_;
  std::int64_t saved_iteration_;
  std::int64_t checked_iteration_ = -1;  ///< of the last save that compared the replicas
};

}  // namespace megatron
