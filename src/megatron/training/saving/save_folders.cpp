#include "megatron/training/saving/save_folders.h"

#include <ostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/local/local_inventory.h"
#include "megatron/checkpoint/stale_temporaries.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/run_folders.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/saving/check_save_folders.h"

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

bool saves_locally(const CheckpointConfig& config) {
  return config.non_persistent_save_interval && config.non_persistent_ckpt_type == "local";
}

SaveFolders open_as(const CheckpointConfig& config, bool is_leader) {
  SaveFolders folders;
  folders.save = std::make_unique<SaveFolder>(config.save, default_file_system(), is_leader);
  if (config.non_persistent_save_interval && !saves_locally(config))
    folders.non_persistent = std::make_unique<SaveFolder>(
        non_persistent_folder(config, config.save), default_file_system(), is_leader);
  return folders;
}

/// Opens the folder of local checkpoints of this host.
void open_local(const CheckpointConfig& config, const std::optional<CheckpointSource>& source,
                const RestartCounts& restarts, const Rank& rank, StartupWarnings& warnings,
                std::ostream& out, SaveFolders& folders) {
  const std::string& root = config.non_persistent_local_ckpt_dir;
  LocalPlacement placement = place_local_checkpoints(
      config, find_folder_owners(root, rank.world, rank.device), restarts, warnings, out);
  const bool is_leader = placement.owners.is_leader(rank.index);
  CollectiveSteps(rank.world, rank.device).run_on_all_ranks([&] {
    if (is_leader) check_non_persistent_folder(config, source, restarts, warnings, out);
    folders.non_persistent = std::make_unique<SaveFolder>(root, default_file_system(), is_leader);
    return std::string();
  });
  folders.local = std::move(placement);
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

SaveFolder::SaveFolder(std::filesystem::path path, FileSystem& files, bool is_leader)
    : path_(std::move(path)), files_(files), is_leader_(is_leader) {
  if (!is_leader) return;
  if (fs::exists(path_) && !fs::is_directory(path_))
    throw UserError({"--save " + path_.string(), "is a file", "give a folder"});
  open();
}

void SaveFolder::open() {
  megatron::create_directories(path_, files_);
  lock_.reset();
  lock_ = std::make_unique<FolderLock>(path_);
  const fs::path probe = path_ / kWriteProbe;
  write_file_atomically(probe, "x", files_);
  remove_tree(probe, files_);
}

const FolderLock* SaveFolder::lock(std::ostream& err) {
  if (!is_leader_) return nullptr;
  if (lock_ == nullptr || !lock_->is_in_place()) {
    err << "WARNING: " << path_.string() << " was deleted during the run; it is created again"
        << std::endl;
    open();
  }
  return lock_.get();
}

SaveFolders open_save_folders(const CheckpointConfig& config,
                              const std::optional<CheckpointSource>& source, const Rank& rank,
                              StartupWarnings& warnings, std::ostream& out) {
  SaveFolders folders;
  if (config.save.empty()) return folders;
  const LaunchEnvironment launch = find_launch_environment();
  const RestartCounts restarts{.count = launch.restart_count, .max = launch.max_restarts};
  CollectiveSteps(rank.world, rank.device).run_on_rank_0([&] {
    check_save_folders(config, source, restarts, warnings, out);
    folders = open_as(config, /*is_leader=*/true);
    folders.continues_saved_run = continues_saved_run(config, source);
    return std::string();
  });
  if (rank.index != 0) folders = open_as(config, /*is_leader=*/false);
  if (saves_locally(config)) open_local(config, source, restarts, rank, warnings, out, folders);
  return folders;
}

}  // namespace megatron
