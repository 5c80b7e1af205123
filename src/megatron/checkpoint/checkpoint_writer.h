// Writes one checkpoint folder from all ranks: takes the lock, removes stale files, checks the free
// space, writes to a pending folder, commits it, and updates the tracker. Pieces may be written in
// the background. A release checkpoint holds weights without an iteration or optimizer state.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/parallel/axis.h"

namespace megatron {

class WeightReader;
struct CheckpointSource;

/// Content of a checkpoint folder. The writer fills in the manifest's tensors and files.
struct CheckpointContent {
  Manifest manifest;
  std::vector<WriteItem> weights, optimizer;
  AuxiliaryFiles auxiliary_files;
};

struct CheckpointWriteOptions {
  const FolderLock* lock =
      nullptr;  ///< the leader's lock on the root; null: the call takes its own
  FileSystem& files = default_file_system();
  Axis world{"world"};            ///< the ranks that write together
  c10::Device device{c10::kCPU};  ///< device of tensors in collectives
  /// Called on every rank when all pieces are written. If it throws, nothing is committed.
  std::function<void()> before_commit = {};
  /// Which ranks share a folder `root`, and where copies go. Null: all ranks share one folder.
  const LocalPlacement* placement = nullptr;
  /// What this rank's last save below the root wrote of frozen weights, so that the next one knows
  /// it without the manifest; commit() updates it. May be null.
  SavedFolder* last = nullptr;
};

/// Writes root/<name> in three steps: the constructor, write() and commit(). Every rank writes its
/// pieces to the pending folder that it sees; the leader of each folder (rank 0, where all share
/// one) writes the rest and commits. With copies, the pieces then also lie in the folders of other
/// ranks. When a step fails, all ranks throw a UserError with file and errno from it or, after
/// write(), from commit(); existing checkpoints stay, and the destructor removes partial files;
/// other folders of the run may have committed.
class CheckpointWrite {
 public:
  /// Opens the pending folders. Collective over the world.
  CheckpointWrite(std::filesystem::path root, const std::string& name, CheckpointContent content,
                  CheckpointWriteOptions options = {});
  CheckpointWrite(const CheckpointWrite&) = delete;
  CheckpointWrite& operator=(const CheckpointWrite&) = delete;
  ~CheckpointWrite();
  /// Writes this rank's pieces; call it once. Any thread, and other collectives of the world may
  /// run beside it. Throws nothing.
  void write();
  /// Lets write() end after the piece that it writes; the checkpoint cannot be completed then. Any
  /// thread.
  void give_up() { is_given_up_ = true; }
  /// Completes the checkpoint, then writes `tracker_text` to the tracker. Returns the folder.
  /// Collective over the world, after write() on each rank.
  std::filesystem::path commit(const std::string& tracker_text);

 private:
  bool is_leader() const;
  std::string on_leaders(const std::function<std::string()>& step) const;
  std::filesystem::path begin(const std::vector<std::string>& bytes);
  std::uint64_t copies_here(std::int64_t rank) const;
  std::string require_shared() const;
  std::string part() const;
  std::string copy() const;
  std::string merge(const std::vector<std::string>& parts);
  void require_files(const Manifest& manifest) const;
  void share_description();
  std::string finish(const std::string& tracker_text);

  const std::filesystem::path root_, path_;
  CheckpointContent content_;
  const CheckpointWriteOptions options_;
  const CollectiveSteps steps_;
  const bool has_one_folder_;
  std::filesystem::path folder_;  ///< pending, where this rank writes
  std::exception_ptr fault_;      ///< of write()
  SavedFolder frozen_;            ///< what write() wrote of frozen weights
  std::atomic<bool> is_given_up_ = false;
  std::string manifest_text_;             ///< set on leaders
  std::optional<FolderLock> own_lock_;    ///< set on a leader when the caller gave no lock
  std::optional<PendingFolder> pending_;  ///< set on a leader
};

/// Writes all weights and states of `reader` as root/release, with the architecture, tokenizer and
/// files of `source`. Each weight is read when it is written, by one of the ranks. Returns the
/// folder. Throws UserError like CheckpointWrite. Collective over options.world.
std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source,
                                    const std::filesystem::path& root,
                                    const CheckpointWriteOptions& options = {});

}  // namespace megatron
