#include "megatron/training/saving/local_placement.h"

#include "megatron/base/error.h"
#include "megatron/config/checkpoint_config.h"

namespace megatron {
namespace {

/// Returns --replication-jump, by default the number of ranks that share a folder. Throws UserError
/// when folders have different numbers of ranks.
std::int64_t jump_of(const CheckpointConfig& config, const FolderOwners& owners) {
  if (config.replication_jump) return *config.replication_jump;
  const auto num_ranks = static_cast<std::int64_t>(owners.leaders.size());
  const std::int64_t jump = num_ranks / owners.num_folders();
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    if (owners.leader_of(rank) != rank / jump * jump)
      throw UserError({"--replication", "hosts have different numbers of ranks",
                       "give --replication-jump, the distance of the ranks that keep copies of "
                       "each other's shards"});
  }
  return jump;
}

Replication replication_of(const CheckpointConfig& config, const FolderOwners& owners) {
  const auto num_ranks = static_cast<std::int64_t>(owners.leaders.size());
  if (owners.num_folders() == 1)
    throw UserError({"--replication",
                     "all ranks share one folder " + config.non_persistent_local_ckpt_dir +
                         ", so a copy would be lost with its original",
                     "leave it out, or give a folder that is another one on each host"});
  const Replication replication{.jump = jump_of(config, owners),
                                .factor = config.replication_factor};
  const std::string flags = "--replication-jump " + std::to_string(replication.jump) +
                            " --replication-factor " + std::to_string(replication.factor);
  if (const std::string fault = replication_error(num_ranks, replication); !fault.empty())
    throw UserError({flags, fault,
                     "choose values whose product divides the number of ranks; the jump is in "
                     "general the number of ranks of a host"});
  const LocalPlacement placement{owners, /*has_copies=*/true, replication};
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const auto copies = static_cast<std::int64_t>(ranks_with_copies(rank, placement).size());
    if (copies + 1 < replication.factor)
      throw UserError({flags,
                       "ranks of one host are in one group: of rank " + std::to_string(rank) +
                           " there would be " + std::to_string(copies + 1) + " copies on " +
                           "different hosts",
                       "give a --replication-jump of at least the number of ranks of a host"});
  }
  return replication;
}

}  // namespace

LocalPlacement place_local_checkpoints(const CheckpointConfig& config, FolderOwners owners,
                                       const RestartCounts& restarts, StartupWarnings& warnings,
                                       std::ostream& out) {
  LocalPlacement placement{.owners = std::move(owners)};
  if (!config.replication) return placement;
  try {
    placement.copies = replication_of(config, placement.owners);
    placement.has_copies = true;
  } catch (const UserError& error) {
    if (restarts.count == 0) throw;
    warnings.add(
        "local checkpoints have no copies after this restart, because " + error.parts().problem(),
        out);
  }
  return placement;
}

}  // namespace megatron
