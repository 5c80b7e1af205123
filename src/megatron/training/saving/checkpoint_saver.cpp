#include "megatron/training/saving/checkpoint_saver.h"

#include <cstdlib>
#include <functional>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/training/observability/step_reporter.h"
#include "megatron/training/saving/checkpointing.h"
#include "megatron/training/saving/retention.h"

namespace megatron {
namespace {

/// Assumed bytes/s before the first save: a slow shared disk.
constexpr double kExpectedBytesPerSecond = 100e6;

std::unique_ptr<ProgressLog> make_progress_log(const Trainer& trainer) {
  const Settings& settings = trainer.settings;
  if (trainer.rank.index != 0 || !settings.logger.log_progress ||
      settings.checkpoint.save.empty() || settings.training.skip_train)
    return nullptr;
  const char* job = std::getenv("SLURM_JOB_ID");
  return std::make_unique<ProgressLog>(
      settings.checkpoint.save,
      ProgressLog::Options{.job_id = job != nullptr ? job : "",
                           .world_size = trainer.rank.world.size,
                           .floating_point_operations = trainer.progress.floating_point_operations},
      trainer.clock);
}

/// Returns the iteration in the tracker file; 0 without one.
std::int64_t tracked_iteration(const std::string& root) {
  const auto tracked = std::filesystem::exists(root) ? read_tracker(root) : std::nullopt;
  return tracked ? tracked->iteration.value_or(0) : 0;
}

/// Runs `save`. If it fails, prints a warning; the next save tries again.
void warn_on_failure(ProgressBar& bar, const Trainer& trainer, const std::function<void()>& save) {
  try {
    save();
  } catch (const UserError& error) {
    bar.clear();
    if (trainer.rank.index != 0) return;
    std::cerr << "WARNING: saving iteration " << trainer.progress.iteration
              << " failed: " << error.what()
              << "\n    training continues, and the next save tries again; earlier checkpoints are "
                 "intact"
              << std::endl;
  }
}

}  // namespace

CheckpointSaver::CheckpointSaver(Trainer& trainer, std::ostream& out, ProgressBar& bar,
                                 JobDeadline* deadline)
    : trainer_(trainer),
      config_(trainer.settings.checkpoint),
      out_(out),
      bar_(bar),
      deadline_(deadline),
      log_(make_progress_log(trainer)),
      saved_iteration_(trainer.progress.iteration) {
  if (log_) log_->start();
  const double bytes =
      12 *
      static_cast<double>(trainer.weights->num_parameters());  // weights and Adam's two moments
  if (deadline_ != nullptr) deadline_->record_save_time(bytes / kExpectedBytesPerSecond);
}

bool CheckpointSaver::divides_iteration(std::optional<std::int64_t> interval) const {
  return interval && trainer_.progress.iteration % *interval == 0;
}

void CheckpointSaver::save_if_due() {
  if (divides_iteration(config_.save_interval)) return try_to_save();
  if (divides_iteration(config_.non_persistent_save_interval))
    warn_on_failure(bar_, trainer_, [this] { save_non_persistent(); });
}

void CheckpointSaver::try_to_save() {
  warn_on_failure(bar_, trainer_, [this] { save(); });
}

void CheckpointSaver::save_at_end() {
  try {
    save();
  } catch (const UserError& error) {
    const std::int64_t latest = tracked_iteration(config_.save);
    const std::string there =
        latest > 0 ? "the latest complete checkpoint is of iteration " + std::to_string(latest)
                   : "there is no complete checkpoint";
    throw UserError({"the last save, of iteration " + std::to_string(trainer_.progress.iteration) +
                         ", failed (" + there + "): " + error.parts().what,
                     error.parts().got, error.parts().fix});
  }
}

void CheckpointSaver::save() {
  const std::int64_t iteration = trainer_.progress.iteration;
  if (trainer_.save_folder == nullptr || saved_iteration_ == iteration) return;
  const PausedInterval paused(trainer_.timers);
  bar_.clear();
  const std::int64_t previous = config_.save_retain_interval ? tracked_iteration(config_.save) : 0;
  const double start = trainer_.clock.monotonic_s();
  save_trainer(trainer_, *trainer_.save_folder, "save-checkpoint", out_);
  if (deadline_ != nullptr) deadline_->record_save_time(trainer_.clock.monotonic_s() - start);
  saved_iteration_ = iteration;
  record_progress();
  if (config_.save_retain_interval && trainer_.rank.index == 0)
    remove_unless_multiple(config_.save, previous, iteration, *config_.save_retain_interval, out_);
}

void CheckpointSaver::save_non_persistent() {
  if (trainer_.non_persistent_folder == nullptr) return;
  const PausedInterval paused(trainer_.timers);
  bar_.clear();
  save_trainer(trainer_, *trainer_.non_persistent_folder, "save-checkpoint-non-persistent", out_);
  if (trainer_.rank.index == 0)
    remove_all_but(trainer_.non_persistent_folder->path(), trainer_.progress.iteration, out_);
}

void CheckpointSaver::record_progress() {
  if (!log_) return;
  const TrainingProgress& progress = trainer_.progress;
  try {
    log_->saved({.iteration = progress.iteration,
                 .floating_point_operations = progress.floating_point_operations,
                 .tokens = static_cast<double>(progress.consumed_train_samples) *
                           static_cast<double>(trainer_.settings.training.seq_length),
                 .elapsed_s = trainer_.clock.monotonic_s() - trainer_.started_s});
  } catch (const UserError& error) {
    out_ << "WARNING: training continues without this line of progress.txt: " << error.what()
         << std::endl;
  }
}

}  // namespace megatron
