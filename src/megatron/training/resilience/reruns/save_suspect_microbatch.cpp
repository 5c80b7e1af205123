#include "megatron/training/resilience/reruns/save_suspect_microbatch.h"

#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/resilience/diagnosis/saved_batch.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

fs::path folder_of(const Settings& settings) {
  if (!settings.checkpoint->save.empty()) return settings.checkpoint->save;
  return settings.logger->tensorboard_dir.empty() ? fs::path(".")
                                                  : fs::path(settings.logger->tensorboard_dir);
}

std::string precision(const TrainingConfig& training) {
  return training.bf16 ? "bf16" : training.fp16 ? "fp16" : "fp32";
}

}  // namespace

std::optional<StepWeights> step_weights(const TrainingPlan& plan, const TrainingProgress& progress,
                                        std::int64_t first_iteration) {
  const CheckpointConfig& config = *plan.settings.checkpoint;
  const std::int64_t iteration = progress.iteration;
  if (iteration == first_iteration) {
    if (!plan.source) return StepWeights{};
    return StepWeights{config.load, plan.source->iteration};
  }
  if (config.save.empty()) return std::nullopt;
  return StepWeights{config.save, iteration};
}

std::string save_suspect_microbatch(const TrainingPlan& plan, const TrainingProgress& progress,
                                    const SuspectMicrobatch& suspect, std::int64_t first_iteration,
                                    const std::string& cause) {
  const Settings& settings = plan.settings;
  if (context_axis(suspect.microbatch, plan.rank).size > 1)
    return "\n  the microbatch is not saved: with --context-parallel-size or "
           "--hybrid-context-parallel each rank holds only part of its sequences; to save it, run "
           "again without that flag";
  const auto weights = step_weights(plan, progress, first_iteration);
  const bool in_checkpoint = weights && !weights->checkpoint_root.empty();
  const SavedBatch batch{
      .microbatch = suspect.microbatch,
      .iteration = progress.iteration + 1,
      .index = static_cast<std::int64_t>(suspect.index),
      .num_microbatches = suspect.num_microbatches,
      .gradient_scale = suspect.gradient_scale,
      .seed = plan.rank.seed,
      .vocab_pad_multiple = settings.tokenizer->make_vocab_size_divisible_by,
      .family = std::string(plan.family->name),
      .model = *settings.model,
      .precision = precision(*settings.training),
      .checkpoint_root = in_checkpoint ? fs::absolute(weights->checkpoint_root).string() : "",
      .checkpoint_iteration = weights ? weights->iteration : -1,
      .cause = cause};
  const fs::path path = saved_batch_path(folder_of(settings), batch);
  try {
    megatron::create_directories(path.parent_path());
    save_batch(path, batch);
  } catch (const std::exception& error) {
    return std::string("\n  the microbatch could not be saved: ") + error.what();
  }
  return "\n  the microbatch is saved; to replay it with a trace of every op: megatron replay " +
         path.string() + (weights ? "" : " --load DIR");
}

}  // namespace megatron
