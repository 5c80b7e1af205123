#include "megatron/training/saving/save_folders.h"

#include "megatron/checkpoint/collective_steps.h"
#include "megatron/config/checkpoint_folders.h"
#include "megatron/config/launch_environment.h"
#include "megatron/training/saving/check_save_folders.h"

namespace megatron {
namespace {

SaveFolders open_as(const CheckpointConfig& config, bool is_leader) {
  SaveFolders folders;
  folders.save = std::make_unique<SaveFolder>(config.save, default_file_system(), is_leader);
  if (config.non_persistent_save_interval)
    folders.non_persistent = std::make_unique<SaveFolder>(
        non_persistent_folder(config, config.save), default_file_system(), is_leader);
  return folders;
}

}  // namespace

SaveFolders open_save_folders(const CheckpointConfig& config,
                              const std::optional<CheckpointSource>& source, const Rank& rank,
                              StartupWarnings& warnings, std::ostream& out) {
  SaveFolders folders;
  if (config.save.empty()) return folders;
  CollectiveSteps(rank.world, rank.device).run_on_rank_0([&] {
    const LaunchEnvironment launch = find_launch_environment();
    check_save_folders(config, source, {.count = launch.restart_count, .max = launch.max_restarts},
                       warnings, out);
    folders = open_as(config, /*is_leader=*/true);
    return std::string();
  });
  if (rank.index != 0) folders = open_as(config, /*is_leader=*/false);
  return folders;
}

}  // namespace megatron
