// Opens the --save folder for a whole run. It checks at startup that the folder is writable and
// locks it against a second run.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/folder_lock.h"

namespace megatron {

class SaveFolder {
 public:
  /// The leader (one rank for each folder) creates the folder, writes a test file and takes the
  /// lock. UserError when `path` is a file or not writable, or when another run holds the lock.
  /// Other ranks do not touch the folder.
  explicit SaveFolder(std::filesystem::path path, FileSystem& files = default_file_system(),
                      bool is_leader = true);

  const std::filesystem::path& path() const { return path_; }
  FileSystem& files() const { return files_; }
  bool is_leader() const { return lock_ != nullptr; }
  /// Returns the lock for a save; null on ranks other than the leader. If the folder was deleted
  /// meanwhile, creates and locks it again and prints a message to `err`.
  const FolderLock* lock(std::ostream& err);

 private:
  void open();

  std::filesystem::path path_;
  FileSystem& files_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace megatron
