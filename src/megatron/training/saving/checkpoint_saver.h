// When a run saves: at intervals, before its batch size changes, at its end; what it keeps, and
// what it notes about it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>

#include "megatron/base/progress_bar.h"
#include "megatron/training/loop/job_deadline.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/progress_log.h"

namespace megatron {

class CheckpointSaver {
 public:
  /// `deadline` learns how long saves take; may be null. Begins progress.txt with --log-progress.
  CheckpointSaver(Trainer& trainer, std::ostream& out, ProgressBar& bar, JobDeadline* deadline);

  /// Saves where --save-interval or --non-persistent-save-interval say so. When that fails,
  /// training goes on after a warning.
  void save_if_due();
  /// Saves to --save, unless there is none or it holds this iteration; a failure is a warning.
  void try_to_save();
  /// The same for the last save of a run: a failure is a UserError that names the checkpoint that
  /// there is.
  void save_at_end();
  /// As save_at_end, even if --save holds this iteration: something besides the weights has
  /// changed.
  void save_again() {
    saved_iteration_ = -1;
    save_at_end();
  }

 private:
  bool divides_iteration(std::optional<std::int64_t> interval) const;
  void save();
  void save_non_persistent();
  void record_progress();

  Trainer& trainer_;
  const CheckpointConfig& config_;
  std::ostream& out_;
  ProgressBar& bar_;
  JobDeadline* deadline_;
  std::unique_ptr<ProgressLog> log_;
  std::int64_t saved_iteration_;
};

}  // namespace megatron
