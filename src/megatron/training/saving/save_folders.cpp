#include "megatron/training/saving/save_folders.h"

#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/local/local_inventory.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/run_folders.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/saving/check_save_folders.h"
#include "megatron/training/saving/local_placement.h"

namespace megatron {
namespace {

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
