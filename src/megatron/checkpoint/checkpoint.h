// One logical checkpoint: safetensors shards and a manifest of boxes and checksums, committed atomically (docs/formats/checkpoint.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "megatron/base/json.h"
#include "megatron/config/settings.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/transformer/param_store.h"

namespace megatron {

/// Everything besides tensors that a run needs to go on as if it had never stopped.
struct TrainingProgress {
  std::int64_t iteration = 0;
  std::int64_t consumed_train_samples = 0;
  std::int64_t skipped_train_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  std::int64_t scheduler_num_steps = 0;  ///< in samples
  double floating_point_operations = 0;
  bool operator==(const TrainingProgress&) const = default;
};

struct SaveRequest {
  const TransformerConfig* model = nullptr;
  const Settings* settings = nullptr;  ///< dumped for people and for the diff on resume
  const ParamStore* weights = nullptr;
  Optimizer* optimizer = nullptr;  ///< null: --no-save-optim
  TrainingProgress progress;
};

/// Writes root/iter_%07d (or replaces it) and then latest_checkpointed_iteration.txt. Returns the folder.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, const SaveRequest& request);

/// What --load names, recognised but not read yet.
struct CheckpointSource {
  enum class Kind { megatron, hugging_face };
  Kind kind = Kind::megatron;
  std::filesystem::path folder;  ///< iter_%07d of ours, or the Hugging Face folder
  TransformerConfig model;       ///< architecture stored there (config.json or the manifest)
  std::string model_type;        ///< Hugging Face model_type the weights came from, "" when unknown
};

/// Looks at `root` (our checkpoint, at `step` or the latest; or a Hugging Face folder). Nothing when it is missing, empty or holds only
/// uncommitted parts; UserError for any other folder.
std::optional<CheckpointSource> find_checkpoint(const std::filesystem::path& root, std::optional<std::int64_t> step = std::nullopt);

/// Fills every weight of `store` from the source, each exactly once, checksums verified; UserErrors name the tensor.
void load_weights(const CheckpointSource& source, ParamStore& store);

/// Restores the optimizer's state; UserError when the checkpoint has none or another optimizer's.
void load_optimizer(const CheckpointSource& source, Optimizer& optimizer);

/// Progress stored in our checkpoints; zeros for Hugging Face folders.
TrainingProgress load_progress(const CheckpointSource& source);

}  // namespace megatron
