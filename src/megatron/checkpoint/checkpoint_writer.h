// Writes one checkpoint folder from all ranks: takes the lock, removes stale files, checks the free
// space, writes to a pending folder, commits it, and updates the tracker. A release checkpoint
// holds weights without an iteration or optimizer state.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/parallel/axis.h"

namespace megatron {

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
};

/// Writes root/<name>, then writes `tracker_text` to the tracker. Returns the folder. Every rank
/// writes its pieces to the pending folder that it sees; the leader of each folder (rank 0, where
/// all share one) writes the rest and commits. With copies, the pieces then also lie in the folders
/// of other ranks. When a call fails, all ranks throw a UserError with file and errno, existing
/// checkpoints stay, and partial files are removed; other folders of the run may have committed.
/// Collective over the world.
std::filesystem::path write_checkpoint(const std::filesystem::path& root, const std::string& name,
                                       const std::string& tracker_text, CheckpointContent content,
                                       const CheckpointWriteOptions& options = {});

/// Writes all weights and states of `reader` as root/release, with the architecture, tokenizer and
/// files of `source`. Each weight is read when it is written, by one of the ranks. Returns the
/// folder. Throws UserError like write_checkpoint(). Collective over options.world.
std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source,
                                    const std::filesystem::path& root,
                                    const CheckpointWriteOptions& options = {});

}  // namespace megatron
