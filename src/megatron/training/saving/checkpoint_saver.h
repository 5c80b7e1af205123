// Saves the checkpoints of a run: at intervals, before its batch size changes, and at its end.
// Removes old checkpoints after a new one has been committed, never before, and records the
// progress.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>

#include "megatron/parallel/communicators.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/observability/progress_log.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/resilience/section_watch.h"
#include "megatron/training/run/job_deadline.h"
#include "megatron/training/run/run_clock.h"
#include "megatron/training/run/training_state.h"
#include "megatron/training/saving/background_save.h"
#include "megatron/training/saving/save_folders.h"

namespace megatron {

struct CheckpointConfig;
struct TrainingPlan;

/// Implements --save-retain-interval: removes checkpoint `previous`, the latest one before
/// `current`, unless it is a multiple of `interval`.
void remove_unless_multiple(const std::filesystem::path& root, std::int64_t previous,
                            std::int64_t current, std::int64_t interval, std::ostream& out);

struct SavingContext {
  SaveFolders& folders;
  Timers& timers;
  SectionWatch& sections;
  const RunClock& clock;
  Communicators* communicators = nullptr;  ///< null: single rank
  JobDeadline* deadline = nullptr;         ///< save times are recorded there; may be null
};

class CheckpointSaver {
 public:
  /// Starts progress.txt with --log-progress.
  CheckpointSaver(const TrainingPlan& plan, const TrainingState& state,
                  const SavingContext& context, const Console& console);

  /// Saves when --save-interval or --non-persistent-save-interval is due, with --async-save in the
  /// background. If a save fails, it prints a warning and training continues.
  void save_if_due();
  /// Completes the save in the background once its pieces are written. Call it in each iteration.
  /// If the save has failed, prints a warning. Collective over the world.
  void complete_if_written();
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
  enum class Way { blocking, background };

  /// Runs `save` of an iteration. If it fails, prints a warning; the next save tries again.
  void warn_on_failure(std::int64_t iteration, const std::function<void()>& save);
  bool divides_iteration(std::optional<std::int64_t> interval) const;
  void save(Way way = Way::blocking);
  void save_persistent(Way way);
  void save_non_persistent();
  void save_to(SaveFolder& folder, std::string_view timer, const LocalPlacement* placement,
               BackgroundSave* background);
  /// Waits for the save in the background, if there is one, and completes it or prints a warning.
  void complete_background_save();
  /// Does what follows a complete persistent checkpoint, whose save began at `start_s`.
  void note_saved(const TrainingProgress& progress, std::int64_t previous, double start_s);
  bool is_replica_check_due() const;
  /// Returns what keeps weights that a fault has changed out of a checkpoint.
  std::function<void()> replica_check();
  void record_progress(const TrainingProgress& progress);

  const TrainingPlan& plan_;
  const TrainingState& state_;
  const SavingContext context_;
  const CheckpointConfig& config_;
  const Console console_;
  std::unique_ptr<ProgressLog> log_;
  BackgroundSave background_;
  std::function<void()> note_background_save_;  ///< once it is complete
  std::int64_t background_iteration_ = 0;
  std::int64_t saved_iteration_;
  std::int64_t checked_iteration_ = -1;  ///< of the last save that compared the replicas
};

}  // namespace megatron
