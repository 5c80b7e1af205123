// Local checkpoints: each host keeps the shards of its ranks, and copies of others', in a folder of
// its own, in general in memory. A start chooses the newest that is complete over all folders and
// brings the shards to the ranks that need them.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/manifest.h"

namespace megatron {

struct CheckpointSource;

struct LocalSearch {
  std::filesystem::path root = {};   ///< --non-persistent-local-ckpt-dir
  std::int64_t first_iteration = 0;  ///< older checkpoints are of no use
  /// Returns whether a checkpoint in the folder is one of this run.
  std::function<bool(const Manifest&)> is_own = {};
  const Axis& world;
  c10::Device device{c10::kCPU};
};

/// What a search found. Equal on all ranks.
struct LocalChoice {
  std::int64_t iteration = 0;
  std::uint64_t identity = 0;  ///< checksum of the manifest
  std::filesystem::path folder = {};
};

/// Returns the newest checkpoint of which every shard lies, undamaged, in the folder of some rank.
/// Afterwards every folder has its manifest and its auxiliary files, but not every shard. Prints
/// one line for each newer one that cannot be used, and why, on rank 0's `out`. Collective over the
/// world.
std::optional<LocalChoice> choose_local_checkpoint(const LocalSearch& search, std::ostream& out);

/// The shard files that were copied to the folders that lacked them.
struct FetchedShards {
  std::int64_t count = 0, num_bytes = 0;
};

/// Copies those shards of `source`, a checkpoint that choose_local_checkpoint() returned, to this
/// rank's folder that its ranks need and that it lacks. `optimizer` may be null. Throws UserError
/// when a shard is in no folder. Returns the sum over all ranks. Collective over the world.
FetchedShards fetch_local_shards(const CheckpointSource& source, const ParamStore& store,
                                 Optimizer* optimizer, const Axis& world);

}  // namespace megatron
