// The steps that every writer of a checkpoint takes: lock, clean, check space, write aside, commit, point the tracker at it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/piece_writer.h"

namespace megatron {

/// What a checkpoint folder shall hold; the manifest's tensors and files are filled in by the writer.
struct CheckpointContent {
  Manifest manifest;
  std::vector<PieceToWrite> weights, optimizer;
  CarriedFiles carried;
};

/// Writes root/<name> and then the tracker with `tracker_text`, all through `files`. `lock` is the caller's lock on `root`; null: taken for the
/// time of the call. Returns the folder. UserError naming file and errno when a call fails: what was there before stays, what was begun goes.
std::filesystem::path write_checkpoint(const std::filesystem::path& root, const std::string& name, const std::string& tracker_text,
                                       CheckpointContent content, const FolderLock* lock = nullptr, FileSystem& files = disk());

}  // namespace megatron
