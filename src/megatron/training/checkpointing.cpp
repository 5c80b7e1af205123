#include "megatron/training/checkpointing.h"

#include <array>
#include <nlohmann/json.hpp>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/training/log_lines.h"
#include "megatron/training/resume_differences.h"

namespace megatron {
namespace {

constexpr const char* kPlace = "[ t 1/1, p 1/1 ]";

void print_timer(Trainer& trainer, std::string_view name, std::ostream& out) {
  const std::string times = trainer.timers.report(std::array<std::string_view, 1>{name});
  if (!times.empty()) out << times << std::endl;
}

void load_schedule(Trainer& trainer, const Json& saved_settings) {
  const SchedulerConfig& config = trainer.settings.scheduler;
  const Json state = saved_schedule_state(saved_settings, trainer.settings, trainer.progress.scheduler_num_steps);
  trainer.scheduler.restore(state, schedule_conflict(config), trainer.source->folder.string());
}

/// Takes up the run that saved the checkpoint where it stood.
void resume(Trainer& trainer, std::ostream& out) {
  const Manifest manifest = read_manifest(trainer.source->folder);
  const std::string differences = settings_differences(*manifest.settings, trainer.settings);
  if (!differences.empty()) out << " settings that differ from the checkpoint's:\n" << differences;
  trainer.progress = load_progress(*trainer.source);
  if (!trainer.settings.checkpoint.load_optim) return;
  load_optimizer(*trainer.source, *trainer.optimizer);
  load_schedule(trainer, *manifest.settings);
}

}  // namespace

std::optional<CheckpointSource> find_checkpoint_to_load(const CheckpointConfig& config, std::ostream& out) {
  if (config.load.empty()) return std::nullopt;
  std::optional<CheckpointSource> source = find_checkpoint(config.load, config.ckpt_step);
  if (source) {
    for (const std::string& note : source->notes) out << "note: " << note << std::endl;
    return source;
  }
  if (config.exit_on_missing_checkpoint)
    throw UserError({"--load " + config.load, "holds no checkpoint, and --exit-on-missing-checkpoint is given", "check the path"});
  out << "WARNING: could not find the metadata file " << config.load << "/latest_checkpointed_iteration.txt\n"
      << "    will not load any checkpoints and will start from random" << std::endl;
  return source;
}

void load_trainer(Trainer& trainer, std::ostream& out) {
  const CheckpointSource& source = *trainer.source;
  const bool is_resume = !source.is_release && !trainer.settings.checkpoint.finetune;
  {
    const auto timing = trainer.timers.scope("load-checkpoint");
    const std::string& root = trainer.settings.checkpoint.load;
    out << " loading " << (source.is_release ? "release " : "") << "checkpoint from " << root;
    if (!source.is_release) out << " at iteration " << source.iteration;
    out << std::endl;
    load_weights(source, *trainer.weights, trainer.optimizer->main_parameters());
    if (is_resume) resume(trainer, out);
    out << "  successfully loaded checkpoint from " << root << ' ' << kPlace << " at iteration " << trainer.progress.iteration << std::endl;
  }
  print_timer(trainer, "load-checkpoint", out);
}

void save_trainer(Trainer& trainer, std::ostream& out) {
  const CheckpointConfig& config = trainer.settings.checkpoint;
  const std::string iteration = format("%7lld", static_cast<long long>(trainer.progress.iteration));
  {
    const auto timing = trainer.timers.scope("save-checkpoint");
    out << '[' << current_time() << "] saving checkpoint at iteration " << iteration << " to " << config.save << " in megatron format" << std::endl;
    save_checkpoint(config.save, {.model = &trainer.settings.model,
                                  .settings = &trainer.settings,
                                  .weights = trainer.weights.get(),
                                  .optimizer = config.save_optim ? trainer.optimizer.get() : nullptr,
                                  .progress = trainer.progress,
                                  .origin = trainer.source ? &*trainer.source : nullptr});
    out << "  [" << current_time() << "] successfully saved checkpoint from iteration " << iteration << " to " << config.save << ' ' << kPlace
        << std::endl;
  }
  print_timer(trainer, "save-checkpoint", out);
}

}  // namespace megatron
