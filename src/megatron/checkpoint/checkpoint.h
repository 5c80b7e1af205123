// One logical checkpoint: safetensors shards and a manifest of slices and checksums, committed
// atomically (docs/formats/checkpoint.md).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/json_value.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/training_progress.h"
#include "megatron/config/settings.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Main parameters are stored as optimizer state of this name: main_param.<weight>.
inline constexpr const char* kMainParameterPrefix = "main_param.";

/// What --load names, recognised but not read yet.
struct CheckpointSource {
  enum class Kind { megatron, hugging_face };
  Kind kind = Kind::megatron;
  std::filesystem::path folder = {};  ///< iter_%07d or release of ours, or the Hugging Face folder
  bool is_release =
      false;  ///< weights only: training starts at iteration 0 without optimizer state
  std::int64_t iteration = 0;
  TransformerConfig model =
      {};  ///< the architecture stored there (config.json or the manifest), resolved
  std::set<std::string> given_training_fields =
      {};  ///< training members (dropout, init std) that the source decides; see merge_architecture
  std::vector<std::string> notes = {};  ///< remarks for stderr
  at::ScalarType weight_type = at::kFloat;
  std::string model_type = {};  ///< Hugging Face model_type the weights came from, "" when unknown
  AuxiliaryFiles auxiliary_files =
      {};  ///< its config.json, tokenizer.json, …, kept for later exports
  /// The one that the weights were trained with; names none when nothing is stored.
  TokenizerConfig tokenizer = {};
};

struct SaveRequest {
  const TransformerConfig* model = nullptr;
  const Settings* settings =
      nullptr;  ///< dumped for people and for the diff on resume; may be null
  const ParamStore* weights = nullptr;
  Optimizer* optimizer = nullptr;  ///< null: --no-save-optim
  JsonValue rerun_state = {};      ///< of a step that is to be run again; null: none
  TrainingProgress progress = {};
  const CheckpointSource* origin =
      nullptr;  ///< what --load gave: its model_type and files are carried on; may be null
  /// Files of the run's tokenizer, carried instead of the origin's; may be null.
  const AuxiliaryFiles* tokenizer = nullptr;
  const FolderLock* lock =
      nullptr;  ///< the caller's lock on the root, of rank 0; null: taken for the time of the save
  FileSystem* files = nullptr;  ///< null: the disk
  Axis world{"world"};  ///< the ranks that hold the parts of the model and write them together
};

/// Writes root/iter_%07d (or replaces it) and then latest_checkpointed_iteration.txt. Returns the
/// folder. UserError naming file and errno when the disk is full or fails, or when another process
/// writes below `root`; the checkpoints that were there stay whole, what was begun is removed.
/// Collective over the world: every rank writes its pieces, into a folder that all see.
std::filesystem::path save_checkpoint(const std::filesystem::path& root,
                                      const SaveRequest& request);

/// Looks at `root`: our checkpoint (at `step` or the latest), one of its iter_ folders, or a
/// Hugging Face folder. Nothing when it is missing, empty or holds only uncommitted parts;
/// UserError for any other folder.
std::optional<CheckpointSource> find_checkpoint(const std::filesystem::path& root,
                                                std::optional<std::int64_t> step = std::nullopt);

/// The source that find_checkpoint found at `folder`, opened without looking around: for the ranks
/// that follow the one that searched.
CheckpointSource open_checkpoint(const std::filesystem::path& folder, CheckpointSource::Kind kind);

/// Fills every weight of `store` from the source, each exactly once, checksums verified; UserErrors
/// name the tensor. Collective over store.model_axis().
void load_weights(const CheckpointSource& source, ParamStore& store);

/// The same for training: float32 main parameters are taken from the checkpoint where it has them,
/// else from its weights in the precision they are stored in, and 16-bit weights of `store` are
/// rounded from them.
void load_weights(const CheckpointSource& source, ParamStore& store, MainParameters& main);

/// Restores the optimizer's state; UserError when the checkpoint has none or another optimizer's.
void load_optimizer(const CheckpointSource& source, Optimizer& optimizer);

/// Progress stored in our checkpoints; zeros for releases and Hugging Face folders.
TrainingProgress load_progress(const CheckpointSource& source);

}  // namespace megatron
