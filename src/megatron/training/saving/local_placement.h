// Decides which ranks keep copies of each other's shards of local checkpoints (--replication).
#pragma once

#include <iosfwd>

#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/saving/check_save_folders.h"

namespace megatron {

struct CheckpointConfig;

/// Returns where local checkpoints go. Throws UserError when the ranks do not divide into groups,
/// or when a copy would lie in the folder of its original; on a restart, which may have fewer
/// hosts, warns instead and makes no copies. The result is equal on all ranks.
LocalPlacement place_local_checkpoints(const CheckpointConfig& config, FolderOwners owners,
                                       const RestartCounts& restarts, StartupWarnings& warnings,
                                       std::ostream& out);

}  // namespace megatron
