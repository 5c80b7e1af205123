// Which rank sends which file to which other rank, so that each folder holds what its ranks need.
// Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/checkpoint/local/replication_groups.h"

namespace megatron {

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
