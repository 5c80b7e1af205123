// The groups of ranks that keep copies of each other's shards of a local checkpoint, as in NVIDIA's
// resiliency extension: group n, n + J, …, n + (F − 1)·J, where J is --replication-jump, F is
// --replication-factor, and n = a·J·F + b with 0 ≤ b < J. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

struct Replication {
  std::int64_t jump = 1;    ///< distance of the ranks of a group
  std::int64_t factor = 2;  ///< ranks of a group, which is the number of copies of a shard
};

/// Returns why `num_ranks` ranks do not divide into groups; "" when they do.
std::string replication_error(std::int64_t num_ranks, const Replication& replication);

/// Returns the group of `rank`, ascending.
std::vector<std::int64_t> replication_group(std::int64_t rank, const Replication& replication);

/// The ranks that share a folder of local checkpoints, in general those of one host.
struct FolderOwners {
  /// For each rank the lowest rank with the same folder, its leader.
  std::vector<std::int64_t> leaders = {};

  std::int64_t leader_of(std::int64_t rank) const {
    return leaders[static_cast<std::size_t>(rank)];
  }
  bool is_leader(std::int64_t rank) const { return leader_of(rank) == rank; }
  /// Returns the ranks that share the folder of `leader`, ascending.
  std::vector<std::int64_t> ranks_of(std::int64_t leader) const;
  /// Returns the number of folders.
  std::int64_t num_folders() const;
};

/// Where the shards of a local checkpoint go: each rank writes to its folder, and without a value
/// of `copies` to no other.
struct LocalPlacement {
  FolderOwners owners = {};
  bool has_copies = false;
  Replication copies = {};
};

/// Returns the ranks that write a copy of the shards of `rank`, in the order of its group: one for
/// each other folder of the group.
std::vector<std::int64_t> ranks_with_copies(std::int64_t rank, const LocalPlacement& placement);

}  // namespace megatron
