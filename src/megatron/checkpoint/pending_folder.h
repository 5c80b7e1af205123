// A folder that appears whole or not at all: written under a temporary name beside its place,
// flushed, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>

#include "megatron/base/file_system.h"

namespace megatron {

namespace fs = std::filesystem;

/// UserError when the disk below `folder`, or this user's quota there, has less than `bytes` and a
/// little more available.
void require_free_space(const fs::path& folder, std::uint64_t bytes,
                        FileSystem& files = default_file_system());

/// Removes a committed folder: it loses its name in one step, so no reader finds half of it.
void remove_folder_atomically(const fs::path& folder, FileSystem& files = default_file_system());

/// Makes `final_path`.tmp-<host>-<pid>; commit() puts it in place, taking an older folder of that
/// name away in the same step. Whoever writes into it flushes each file. An uncommitted one is
/// removed on destruction.
class PendingFolder {
 public:
  explicit PendingFolder(fs::path final_path, FileSystem& files = default_file_system());
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();

  const fs::path& path() const { return path_; }
  void commit();

 private:
  /// Where the replaced folder is now; empty when there was none.
  fs::path rename_into_place();

  FileSystem& files_;
  fs::path final_path_, path_;
  bool committed_ = false;
};

}  // namespace megatron
