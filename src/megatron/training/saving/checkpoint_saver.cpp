#include "megatron/training/saving/checkpoint_saver.h"

#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/run_folders.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/optimizer/replica_check.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/observability/step_reporter.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/saving/checkpointing.h"

namespace megatron {
namespace {

/// Assumed bytes/s before the first save: a slow shared disk.
constexpr double kExpectedBytesPerSecond = 100e6;

std::unique_ptr<ProgressLog> make_progress_log(const TrainingPlan& plan,
                                               const TrainingProgress& progress,
                                               const RunClock& clock) {
  const Settings& settings = plan.settings;
  if (plan.rank.index != 0 || !settings.logger->log_progress || settings.checkpoint->save.empty() ||
      settings.training->skip_train)
    return nullptr;
  const char* job = std::getenv("SLURM_JOB_ID");
  return std::make_unique<ProgressLog>(
      settings.checkpoint->save,
      ProgressLog::Options{.job_id = job != nullptr ? job : "",
                           .world_size = plan.rank.world.size,
                           .floating_point_operations = progress.floating_point_operations},
      clock);
}

/// Returns the iteration that --save holds when the run starts; −1 if it goes on from a
/// non-persistent checkpoint, which is newer.
std::int64_t first_saved_iteration(const TrainingPlan& plan, std::int64_t iteration) {
  const CheckpointConfig& config = *plan.settings.checkpoint;
  const std::string folder = non_persistent_folder(config, config.load);
  const bool is_non_persistent =
      plan.source && !folder.empty() && plan.source->folder.parent_path() == folder;
  return is_non_persistent && iteration > 0 ? -1 : iteration;
}

/// Returns the iteration in the tracker file; 0 without a file that can be read. A broken one must
/// not keep a run from saving: the save replaces it.
std::int64_t tracked_iteration(const std::string& root) try {
  const auto tracked = fs::exists(root) ? read_tracker(root) : std::nullopt;
  return tracked ? tracked->iteration.value_or(0) : 0;
} catch (const std::exception&) {
  return 0;
}

/// Removes the checkpoint of `iteration` below `root` atomically: readers see it whole or not at
/// all. Symbolic links are kept. Prints what it does to `out`.
void remove_checkpoint(const std::filesystem::path& root, std::int64_t iteration,
                       std::ostream& out) {
  const fs::path folder = root / iteration_folder(iteration);
  if (fs::is_symlink(folder)) {
    out << "  skipping the removal of " << folder.string() << ": it is a symbolic link"
        << std::endl;
    return;
  }
  if (!fs::exists(folder)) return;
  try {
    remove_folder_atomically(folder);
  } catch (const UserError& error) {
    out << "WARNING: an old checkpoint could not be removed, training continues: " << error.what()
        << std::endl;
    return;
  }
  out << "  removed the checkpoint of iteration " << iteration << " from " << root.string()
      << std::endl;
}

/// Removes all checkpoints below `root` except `newest`. Used for non-persistent checkpoints.
void remove_all_but(const std::filesystem::path& root, std::int64_t newest, std::ostream& out) {
  for (const std::int64_t iteration : committed_iterations(root)) {
    if (iteration != newest) remove_checkpoint(root, iteration, out);
  }
}

}  // namespace

void remove_unless_multiple(const std::filesystem::path& root, std::int64_t previous,
                            std::int64_t current, std::int64_t interval, std::ostream& out) {
  if (previous > 0 && previous != current && previous % interval != 0)
    remove_checkpoint(root, previous, out);
}

CheckpointSaver::CheckpointSaver(const TrainingPlan& plan, const TrainingState& state,
                                 const SavingContext& context, const Console& console)
    : plan_(plan),
      state_(state),
      context_(context),
      config_(*plan.settings.checkpoint),
      console_(console),
      log_(make_progress_log(plan, state.progress, context.clock)),
      saved_iteration_(first_saved_iteration(plan, state.progress.iteration)) {
  if (log_) log_->start();
  const double bytes =
      12 * static_cast<double>(state.weights->num_parameters());  // weights and Adam's two moments
  if (context_.deadline != nullptr)
    context_.deadline->record_save_time(bytes / kExpectedBytesPerSecond);
}

void CheckpointSaver::warn_on_failure(std::int64_t iteration, const std::function<void()>& save) {
  try {
    save();
  } catch (const UserError& error) {
    console_.bar.clear();
    if (plan_.rank.index != 0) return;
    std::cerr << "WARNING: saving iteration " << iteration << " failed: " << error.what()
              << "\n    training continues, and the next save tries again; earlier checkpoints are "
                 "intact"
              << std::endl;
  }
}

bool CheckpointSaver::divides_iteration(std::optional<std::int64_t> interval) const {
  return interval && state_.progress.iteration % *interval == 0;
}

void CheckpointSaver::save_if_due() {
  const std::int64_t iteration = state_.progress.iteration;
  if (divides_iteration(config_.save_interval))
    return warn_on_failure(iteration,
                           [this] { save(config_.async_save ? Way::background : Way::blocking); });
  if (divides_iteration(config_.non_persistent_save_interval))
    warn_on_failure(iteration, [this] { save_non_persistent(); });
}

void CheckpointSaver::complete_if_written() {
  if (background_.is_under_way() && background_.is_written()) complete_background_save();
}

void CheckpointSaver::complete_background_save() {
  if (!background_.is_under_way()) return;
  const PausedInterval paused(context_.timers);
  const SectionScope section(context_.communicators, "completing the checkpoint of iteration " +
                                                         std::to_string(background_iteration_));
  const SectionWatch::Scope timed = context_.sections.enter(RunSection::checkpointing);
  warn_on_failure(background_iteration_, [this] {
    background_.complete();
    note_background_save_();
  });
}

void CheckpointSaver::try_to_save() {
  warn_on_failure(state_.progress.iteration, [this] { save(); });
}

void CheckpointSaver::save_at_end() {
  try {
    save();
  } catch (const UserError& error) {
    const std::int64_t latest = tracked_iteration(config_.save);
    const std::string there =
        latest > 0 ? "the latest complete checkpoint is of iteration " + std::to_string(latest)
                   : "there is no complete checkpoint";
    throw UserError({"the last save, of iteration " + std::to_string(state_.progress.iteration) +
                         ", failed (" + there + "): " + error.parts().what,
                     error.parts().got, error.parts().fix});
  }
}

void CheckpointSaver::save(Way way) {
  complete_background_save();
  const std::int64_t iteration = state_.progress.iteration;
  if (context_.folders.save == nullptr || saved_iteration_ == iteration) return;
  const PausedInterval paused(context_.timers);
  const SectionScope section(context_.communicators,
                             "saving the checkpoint of iteration " + std::to_string(iteration));
  {
    const SectionWatch::Scope timed = context_.sections.enter(RunSection::checkpointing);
    save_persistent(way);
  }
  context_.sections.record_save();
  calculate_section_timeouts(/*is_at_end=*/false);
}

void CheckpointSaver::save_persistent(Way way) {
  const std::int64_t previous = config_.save_retain_interval ? tracked_iteration(config_.save) : 0;
  const double start_s = context_.clock.monotonic_s();
  const TrainingProgress progress = state_.progress;
  const bool is_blocking = way == Way::blocking;
  save_to(*context_.folders.save, "save-checkpoint", nullptr, is_blocking ? nullptr : &background_);
  if (is_blocking) return note_saved(progress, previous, start_s);
  background_iteration_ = progress.iteration;
  note_background_save_ = [=, this] {
    print_saved(plan_, progress.iteration, context_.folders.save->path(), console_.lines());
    note_saved(progress, previous, start_s);
  };
}

void CheckpointSaver::note_saved(const TrainingProgress& progress, std::int64_t previous,
                                 double start_s) {
  if (context_.deadline != nullptr)
    context_.deadline->record_save_time(context_.clock.monotonic_s() - start_s);
  saved_iteration_ = progress.iteration;
  record_progress(progress);
  if (config_.save_retain_interval && plan_.rank.index == 0)
    remove_unless_multiple(config_.save, previous, progress.iteration,
                           *config_.save_retain_interval, console_.out);
}

void CheckpointSaver::save_non_persistent() {
  SaveFolders& folders = context_.folders;
  if (folders.non_persistent == nullptr) return;
  const PausedInterval paused(context_.timers);
  const SectionScope section(context_.communicators, "saving a non-persistent checkpoint");
  const SectionWatch::Scope timed = context_.sections.enter(RunSection::checkpointing);
  save_to(*folders.non_persistent, "save-checkpoint-non-persistent",
          folders.local ? &*folders.local : nullptr, nullptr);
  if (folders.non_persistent->is_leader())  // now that the new one is complete in every folder
    remove_all_but(folders.non_persistent->path(), state_.progress.iteration, console_.out);
}

void CheckpointSaver::save_to(SaveFolder& folder, std::string_view timer,
                              const LocalPlacement* placement, BackgroundSave* background) {
  save_training_state(plan_, state_,
                      {.folder = folder,
                       .timers = context_.timers,
                       .timer = timer,
                       .placement = placement,
                       .before_commit = replica_check(),
                       .background = background},
                      console_.lines());
}

bool CheckpointSaver::is_replica_check_due() const {
  const std::int64_t interval =
      plan_.settings.parallel->check_weight_hash_across_dp_replicas_interval;
  return interval > 0 && state_.progress.iteration % interval == 0;
}

std::function<void()> CheckpointSaver::replica_check() {
  if (plan_.settings.parallel->check_weight_hash_across_dp_replicas_interval == 0) return {};
  // A comparison before the weights are read would not see a fault that occurs in between.
  return [this] {
    check_replicas(*state_.weights);
    checked_iteration_ = state_.progress.iteration;
  };
}

void CheckpointSaver::check_replicas_if_due() {
  if (!is_replica_check_due() || checked_iteration_ == state_.progress.iteration) return;
  const SectionWatch::Scope section = context_.sections.enter_end_of_step();
  check_replicas(*state_.weights);
}

void CheckpointSaver::calculate_section_timeouts(bool is_at_end) {
  try {
    const std::string limits =
        context_.sections.calculate({plan_.rank.world, plan_.rank.device}, is_at_end);
    if (!limits.empty()) console_.lines() << "section timeouts: " << limits << std::endl;
  } catch (const UserError& error) {
    console_.out << "WARNING: the section timeouts are not kept for later starts: " << error.what()
                 << std::endl;
  }
}

void CheckpointSaver::record_progress(const TrainingProgress& progress) {
  if (!log_) return;
  try {
    log_->saved({.iteration = progress.iteration,
                 .floating_point_operations = progress.floating_point_operations,
                 .tokens = static_cast<double>(progress.consumed_train_samples) *
                           static_cast<double>(plan_.settings.training->seq_length),
                 .elapsed_s = context_.clock.elapsed_s()});
  } catch (const UserError& error) {
    console_.out << "WARNING: training continues without this line of progress.txt: "
                 << error.what() << std::endl;
  }
}

}  // namespace megatron
