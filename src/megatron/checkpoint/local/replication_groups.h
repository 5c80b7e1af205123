// The groups of ranks that keep copies of each other's shards of a local checkpoint, as in NVIDIA's
// resiliency extension: group n, n + J, …, n + (F − 1)·J, where J is --replication-jump, F is
// --replication-factor, and n = a·J·F + b with 0 ≤ b < J. Also plans which rank sends which file to
// which other rank, so that each folder holds what its ranks need. Pure arithmetic.
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

/// A file, by its place in the list of all files, goes from a rank to a rank.
struct FileTransfer {
  std::size_t file = 0;
  std::int64_t from = 0, to = 0;
  bool operator==(const FileTransfer&) const = default;
};

/// For each rank some files, each by its place in the list of all files.
using FilesByRank = std::vector<std::vector<std::size_t>>;

/// The transfers, and the files that some rank needs and no folder holds.
struct TransferPlan {
  std::vector<FileTransfer> transfers = {};
  std::vector<std::size_t> missing = {};
};

/// Returns each file once for each folder that lacks it. `needed` are the files that each rank
/// needs; those that its folder holds may be left out. `held` are the files in the folder of each
/// leader. The work is spread over the ranks of a folder and over the folders with copies. A rank
/// that makes its transfers in this order never waits in a circle.
TransferPlan plan_transfers(const FolderOwners& owners, const FilesByRank& needed,
                            const FilesByRank& held);

}  // namespace megatron
