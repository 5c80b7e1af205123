// The folders that a run saves its checkpoints to.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/saving/save_folder.h"

namespace megatron {

struct CheckpointSource;
struct Rank;
struct CheckpointConfig;

/// A folder is null when the run does not save to it.
struct SaveFolders {
  std::unique_ptr<SaveFolder> save, non_persistent;
  bool continues_saved_run = false;  ///< the run in --save; on rank 0
  /// Which ranks share the folder of local checkpoints, and where copies go; unset for others.
  std::optional<LocalPlacement> local = {};
};

/// Opens the folder of --save and that of the non-persistent checkpoints. Rank 0 checks, creates
/// and locks them; those of local checkpoints one rank of each host. The other ranks wait for it
/// and do not read them. UserError when the run would overwrite another one, or when copies have no
/// place. Collective over rank.world.
SaveFolders open_save_folders(const CheckpointConfig& config,
                              const std::optional<CheckpointSource>& source, const Rank& rank,
                              StartupWarnings& warnings, std::ostream& out);

}  // namespace megatron
