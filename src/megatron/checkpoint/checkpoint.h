// Checkpoints that do not depend on the parallel layout: safetensors shards and a manifest of
// pieces and checksums, committed atomically (docs/formats/checkpoint.md).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/json_value.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/training_progress.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"

namespace megatron {

class CheckpointWrite;
class HostSnapshot;
struct CheckpointSource;
struct SavedFolder;
struct Settings;
struct TransformerConfig;

struct SaveRequest {
  const TransformerConfig* model = nullptr;
  std::string family = {};             ///< ModelFamily::name
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
  /// Called on every rank when all weights have been read. If it throws, nothing is committed.
  std::function<void()> before_commit = {};
  /// Which ranks share a folder `root`, and where copies go. Null: all ranks share one folder.
  const LocalPlacement* placement = nullptr;
  SavedFolder* last = nullptr;  ///< CheckpointWriteOptions::last; kept from save to save
};

/// Writes or replaces root/iter_%07d, then updates latest_checkpointed_iteration.txt. Returns the
/// folder. Throws a UserError with file and errno when the disk is full or fails, or when another
/// process writes below `root`; then existing checkpoints stay whole and partial files are removed.
/// Collective over the world: every rank writes its pieces to a folder that all ranks share, or to
/// that of its host.
std::filesystem::path save_checkpoint(const std::filesystem::path& root,
                                      const SaveRequest& request);

/// Begins the same save: the caller goes on with write() in any thread, and commit() with the
/// iteration (checkpoint_writer.h). The tensors are copied to `snapshot`, so that they may change
/// meanwhile, and the snapshot must stay as it is until write() has returned. Null: write() reads
/// them. Collective over the world.
std::unique_ptr<CheckpointWrite> begin_checkpoint(const std::filesystem::path& root,
                                                  const SaveRequest& request,
                                                  HostSnapshot* snapshot = nullptr);

/// Fills every weight of `store` exactly once from the source and verifies checksums. Of ranks that
/// hold the same elements, one reads them and broadcasts. UserErrors name the tensor. Collective
/// over store.model_axis() and the ranks with the same weights, as are those below.
void load_weights(const CheckpointSource& source, ParamStore& store);

/// Fills the weights of `store` and its main weights for training. Float32 main weights come from
/// the checkpoint if it stores them, else from its weights in their stored precision; 16-bit
/// weights of `store` are rounded from them.
void load_weights(const CheckpointSource& source, ParamStore& store, MainParameters& main);

/// Restores the optimizer's state. Throws a UserError when the checkpoint has none, and one that
/// names the differences unless it holds exactly the states of this optimizer and model: of the
/// optimizer, of layers (ParameterKind::state), and main weights of all parameters or of none. Of
/// parameters that were frozen, or are now, it may hold none, or more. Returns those whose state
/// starts at zero, because they were frozen when it was saved.
std::set<std::string> load_optimizer(const CheckpointSource& source, Optimizer& optimizer);

}  // namespace megatron
