#include "megatron/training/saving/checkpointing.h"

#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/checkpoint_folders.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/saving/non_finite_weights.h"
#include "megatron/training/saving/resume_differences.h"

namespace megatron {
namespace {

/// Returns this rank's coordinates as Megatron prints them.
std::string place(const Rank& rank) {
  const auto of = [](const Axis& axis) {
    return std::to_string(axis.rank + 1) + "/" + std::to_string(axis.size);
  };
  return "[ t " + of(rank.tp) + ", p " + of(rank.pp) + " ]";
}

void print_timer(Trainer& trainer, std::string_view name, std::ostream& out) {
  const std::string times = trainer.timers.report(std::array<std::string_view, 1>{name});
  if (!times.empty()) out << times << std::endl;
}

void load_schedule(Trainer& trainer, const Json& saved_settings) {
  const SchedulerConfig& config = trainer.settings.scheduler;
  const std::int64_t num_steps = trainer.progress.scheduler_num_steps;
  if (schedule_conflict(config) == ScheduleConflict::use_flags)
    return trainer.scheduler.set_num_steps(num_steps);
  const Json state = saved_schedule_state(saved_settings, trainer.settings, num_steps);
  trainer.scheduler.load_state_dict(state, schedule_conflict(config),
                                    trainer.source->folder.string());
}

/// Restores the progress of the run that saved the checkpoint.
void resume(Trainer& trainer, std::ostream& out) {
  const Manifest manifest = read_manifest(trainer.source->folder);
  const std::string differences = settings_differences(*manifest.settings, trainer.settings);
  if (!differences.empty()) out << " flags that differ from the checkpoint's:\n" << differences;
  if (const std::string grave = breaking_differences(differences); !grave.empty())
    trainer.warnings.keep(
        "this is no longer the run that was saved; flags that differ from the checkpoint's:\n" +
        grave);
  trainer.progress = load_progress(*trainer.source);
  trainer.rerun_state = manifest.rerun_state;
  if (!trainer.optimizer) return;
  if (!trainer.settings.checkpoint.load_optim) {
    trainer.warnings.add(
        "the optimizer starts without state, and the learning rate's schedule from its beginning "
        "(--no-load-optim)",
        out);
    return;
  }
  load_optimizer(*trainer.source, *trainer.optimizer);
  load_schedule(trainer, *manifest.settings);
}

/// Returns the folder of `source` as the flags name it.
std::string root_of(const CheckpointSource& source, const CheckpointConfig& config) {
  const std::string non_persistent = non_persistent_folder(config, config.load);
  return !non_persistent.empty() && source.folder.parent_path() == non_persistent ? non_persistent
                                                                                  : config.load;
}

}  // namespace

void load_trainer(Trainer& trainer, std::ostream& out) {
  const CheckpointSource& source = *trainer.source;
  const bool is_resume = !source.is_release && !trainer.settings.checkpoint.finetune;
  {
    const auto timing = trainer.timers.scope("load-checkpoint");
    const std::string root = root_of(source, trainer.settings.checkpoint);
    out << " loading " << (source.is_release ? "release " : "") << "checkpoint from " << root;
    if (!source.is_release) out << " at iteration " << source.iteration;
    out << std::endl;
    if (trainer.optimizer) {
      load_weights(source, *trainer.weights, trainer.optimizer->main_parameters());
    } else {
      load_weights(source, *trainer.weights);
    }
    trainer.non_finite_checkpoint = non_finite_weights(source, *trainer.weights, trainer.rank);
    if (!trainer.non_finite_checkpoint.empty())
      trainer.warnings.add(trainer.non_finite_checkpoint, out);
    if (is_resume) resume(trainer, out);
    out << "  successfully loaded checkpoint from " << root << ' ' << place(trainer.rank)
        << " at iteration " << trainer.progress.iteration << std::endl;
  }
  print_timer(trainer, "load-checkpoint", out);
}

void save_trainer(Trainer& trainer, SaveFolder& folder, std::string_view timer, std::ostream& out) {
  const std::string root = folder.path().string();
  const std::string iteration = format("%7lld", static_cast<long long>(trainer.progress.iteration));
  {
    const auto timing = trainer.timers.scope(timer);
    out << '[' << current_time() << "] saving checkpoint at iteration " << iteration << " to "
        << root << " in megatron format" << std::endl;
    save_checkpoint(
        root,
        {.model = &trainer.settings.model,
         .settings = &trainer.settings,
         .weights = trainer.weights.get(),
         .optimizer = trainer.settings.checkpoint.save_optim ? trainer.optimizer.get() : nullptr,
         .rerun_state = trainer.rerun_state,
         .progress = trainer.progress,
         .origin = trainer.source ? &*trainer.source : nullptr,
         .tokenizer = &trainer.tokenizer_files,
         .lock = folder.lock(std::cerr),
         .files = &folder.files(),
         .world = trainer.rank.world});
    out << "  [" << current_time() << "] successfully saved checkpoint from iteration " << iteration
        << " to " << root << ' ' << place(trainer.rank) << std::endl;
  }
  print_timer(trainer, timer, out);
}

}  // namespace megatron
