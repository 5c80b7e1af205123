// The folder that --save names, held for a whole run: checked before hours of training, and locked
// against a second run.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/folder_lock.h"

namespace megatron {

class SaveFolder {
 public:
  /// The leader, one rank of a run, creates the folder, writes a file there and takes its lock:
  /// UserError when it is a file, cannot be written, or another run holds it. The others follow it.
  explicit SaveFolder(std::filesystem::path path, FileSystem& files = default_file_system(),
                      bool is_leader = true);

  const std::filesystem::path& path() const { return path_; }
  FileSystem& files() const { return files_; }
  /// The lock to save under; null for a follower. A folder that has vanished since is made and
  /// locked again, which is said on `err`.
  const FolderLock* lock(std::ostream& err);

 private:
  void open();

  std::filesystem::path path_;
  FileSystem& files_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace megatron
