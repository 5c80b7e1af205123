// The steps that every writer of a checkpoint takes: lock, clean, check space, write aside, commit,
// point the tracker at it.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/parallel/axis.h"

namespace megatron {

/// What a checkpoint folder shall hold; the manifest's tensors and files are filled in by the
/// writer.
struct CheckpointContent {
  Manifest manifest;
  std::vector<WriteItem> weights, optimizer;
  AuxiliaryFiles auxiliary_files;
};

struct CheckpointWriteOptions {
  const FolderLock* lock =
      nullptr;  ///< the caller's lock on the root (of rank 0); null: taken for the time of the call
  FileSystem& files = default_file_system();
  Axis world{"world"};            ///< the ranks that write together
  c10::Device device{c10::kCPU};  ///< where their tensors lie
};

/// Writes root/<name> and then the tracker with `tracker_text`. Every rank writes the pieces of its
/// content into one pending folder; the rest of the content, and the commit, are rank 0's. Returns
/// the folder. UserError naming file and errno when a call fails, on all ranks: what was there
/// before stays, what was begun goes. Collective over the world.
std::filesystem::path write_checkpoint(const std::filesystem::path& root, const std::string& name,
                                       const std::string& tracker_text, CheckpointContent content,
                                       const CheckpointWriteOptions& options = {});

}  // namespace megatron
