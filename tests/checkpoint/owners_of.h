// Folders of local checkpoints for tests.
#pragma once

#include "megatron/checkpoint/local/replication_groups.h"

namespace megatron {

/// Returns the owners of folders with `per_folder` ranks each.
inline FolderOwners owners_of(std::int64_t num_ranks, std::int64_t per_folder) {
  FolderOwners owners;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank)
    owners.leaders.push_back(rank / per_folder * per_folder);
  return owners;
}

}  // namespace megatron
