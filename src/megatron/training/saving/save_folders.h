// The folders that a run saves its checkpoints to, and which ranks keep copies of each other's
// shards of local checkpoints (--replication).
#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <optional>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/saving/check_save_folders.h"

namespace megatron {

struct CheckpointConfig;
struct CheckpointSource;
struct Rank;

/// Returns where local checkpoints go. Throws UserError when the ranks do not divide into groups,
/// or when a copy would lie in the folder of its original; on a restart, which may have fewer
/// hosts, warns instead and makes no copies. The result is equal on all ranks.
LocalPlacement place_local_checkpoints(const CheckpointConfig& config, FolderOwners owners,
                                       const RestartCounts& restarts, StartupWarnings& warnings,
                                       std::ostream& out);

/// Opens the --save folder for a whole run. It checks at startup that the folder is writable and
/// locks it against a second run.
class SaveFolder {
 public:
  /// The leader (one rank for each folder) creates the folder, writes a test file and takes the
  /// lock. UserError when `path` is a file or not writable, or when another run holds the lock.
  /// Other ranks do not touch the folder.
  explicit SaveFolder(std::filesystem::path path, FileSystem& files = default_file_system(),
                      bool is_leader = true);

  const std::filesystem::path& path() const { return path_; }
  FileSystem& files() const { return files_; }
  bool is_leader() const { return is_leader_; }
  /// Returns the lock for a save; null on ranks other than the leader. If the folder was deleted
  /// meanwhile, creates and locks it again and prints a message to `err`. UserError like the
  /// constructor.
  const FolderLock* lock(std::ostream& err);
  /// Returns what this rank has saved last (SaveRequest::last).
  SavedFolder& last() { return last_; }

 private:
  void open();

  std::filesystem::path path_;
  FileSystem& files_;
  const bool is_leader_;
  std::unique_ptr<FolderLock> lock_;  ///< null after an open() that failed, too
  SavedFolder last_;
};

/// A folder is null when the run does not save to it.
struct SaveFolders {
  std::unique_ptr<SaveFolder> save, non_persistent;
  bool continues_saved_run = false;  ///< the run in --save; on rank 0
  /// Which ranks share the folder of local checkpoints, and where copies go; unset for others.
  std::optional<LocalPlacement> local = {};
};

/// Opens the folder of --save and that of the non-persistent checkpoints. Rank 0 checks, creates
/// and locks them; those of local checkpoints one rank of each host. The other ranks wait for it
/// and do not read them. UserError when the run would overwrite another one, or when copies have no
/// place. Collective over rank.world.
SaveFolders open_save_folders(const CheckpointConfig& config,
                              const std::optional<CheckpointSource>& source, const Rank& rank,
                              StartupWarnings& warnings, std::ostream& out);

}  // namespace megatron
