// Checkpoints that do not depend on the parallel layout: safetensors shards and a manifest of
// pieces and checksums, committed atomically (docs/formats/checkpoint.md).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/json_value.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/checkpoint/training_progress.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"

namespace megatron {

struct Settings;

/// Prefix of the names under which main weights are stored as optimizer state:
/// main_param.<weight>.
inline constexpr const char* kMainParameterPrefix = "main_param.";

/// Describes what --load names, before any weight is read.
struct CheckpointSource {
  enum class Kind { megatron, hugging_face };
  Kind kind = Kind::megatron;
  /// Checksum of what describes the tensors: the manifest, whose pieces have checksums of their
  /// own, or config.json with the names, types and places of a Hugging Face directory's tensors.
  std::uint64_t identity = 0;
  std::filesystem::path folder = {};  ///< native iter_%07d or release, or a Hugging Face directory
  bool is_release =
      false;  ///< weights only: training starts at iteration 0 without optimizer state
  std::int64_t iteration = 0;
  /// Its shards lie in folders of this name on several hosts: fetch_local_shards() brings those
  /// that a rank needs.
  bool is_local = false;
  TransformerConfig model = {};  ///< resolved architecture from the manifest or config.json
  std::set<std::string> given_training_fields = {};  ///< training members (dropout, init std) that
                                                     ///< the source sets; see merge_architecture
  std::vector<std::string> notes = {};               ///< remarks to print on stderr
  at::ScalarType weight_type = at::kFloat;
  std::string model_type = {};          ///< Hugging Face model_type of the weights; "" when unknown
  AuxiliaryFiles auxiliary_files = {};  ///< config.json, tokenizer.json, … for later exports
  /// The tokenizer that the weights were trained with; unset when none is stored.
  TokenizerConfig tokenizer = {};
};

struct SaveRequest {
  const TransformerConfig* model = nullptr;
  const Settings* settings = nullptr;  ///< stored for inspection and for the diff on resume; may be
                                       ///< null
  const ParamStore* weights = nullptr;
  Optimizer* optimizer = nullptr;  ///< null with --no-save-optim
  JsonValue rerun_state = {};      ///< state of a step that is to be rerun; null when there is none
  TrainingProgress progress = {};
  const CheckpointSource* origin = nullptr;  ///< the source of --load, whose model_type and files
                                             ///< are carried over; may be null
  /// Files of the run's tokenizer, which replace the origin's; may be null.
  const AuxiliaryFiles* tokenizer = nullptr;
  const FolderLock* lock = nullptr;  ///< rank 0's lock on the root; null: the save takes its own
  FileSystem* files = nullptr;       ///< null: the real file system
  Axis world{"world"};               ///< the ranks that hold the model and write it together
  /// Called on every rank when all pieces are written. If it throws, nothing is committed.
  std::function<void()> before_commit = {};
  /// Which ranks share a folder `root`, and where copies go. Null: all ranks share one folder.
  const LocalPlacement* placement = nullptr;
};

/// Writes or replaces root/iter_%07d, then updates latest_checkpointed_iteration.txt. Returns the
/// folder. Throws a UserError with file and errno when the disk is full or fails, or when another
/// process writes below `root`; then existing checkpoints stay whole and partial files are removed.
/// Collective over the world: every rank writes its pieces to a folder that all ranks share, or to
/// that of its host.
std::filesystem::path save_checkpoint(const std::filesystem::path& root,
                                      const SaveRequest& request);

/// Finds what `root` holds: a native checkpoint (at `step` or the latest), one of its iter_
/// folders, or a Hugging Face directory. Returns nullopt when it is missing, empty or holds only
/// uncommitted files; throws a UserError for any other folder.
std::optional<CheckpointSource> find_checkpoint(const std::filesystem::path& root,
                                                std::optional<std::int64_t> step = std::nullopt);

/// Opens the source that find_checkpoint() found at `folder`, without a search. Ranks call it that
/// follow the rank which searched.
CheckpointSource open_checkpoint(const std::filesystem::path& folder, CheckpointSource::Kind kind);

/// Fills every weight of `store` exactly once from the source and verifies checksums. UserErrors
/// name the tensor. Collective over store.model_axis().
void load_weights(const CheckpointSource& source, ParamStore& store);

/// Fills the weights of `store` and its main weights for training. Float32 main weights come from
/// the checkpoint if it stores them, else from its weights in their stored precision; 16-bit
/// weights of `store` are rounded from them. Collective over store.model_axis().
void load_weights(const CheckpointSource& source, ParamStore& store, MainParameters& main);

/// Restores the optimizer's state. Throws a UserError when the checkpoint has none, or that of
/// another optimizer.
void load_optimizer(const CheckpointSource& source, Optimizer& optimizer);

/// Returns the progress of a native checkpoint; zeros for releases and Hugging Face directories.
TrainingProgress load_progress(const CheckpointSource& source);

}  // namespace megatron
