// A folder that appears whole or not at all: written under a temporary name beside its place, flushed, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace megatron {

namespace fs = std::filesystem;

/// Only one process at a time may write below a folder; released on destruction or when the process ends. A second one gets a UserError.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int descriptor_ = -1;
};

/// UserError when the disk below `folder` has less than `bytes` and a little more available.
void require_free_space(const fs::path& folder, std::uint64_t bytes);

/// Whether `name` is that of a folder or file that was never put in place ("iter_0000010.tmp-…").
bool is_uncommitted_name(const std::string& name);

/// Removes what interrupted writers left below `root`. Call under a FolderLock.
void remove_uncommitted(const fs::path& root);

/// Makes `final_path`.tmp-<host>-<pid>; commit() flushes it and puts it in place, taking an older folder of that name away in the same step.
class PendingFolder {
 public:
  explicit PendingFolder(fs::path final_path);
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();

  const fs::path& path() const { return path_; }
  void commit();

 private:
  fs::path final_path_, path_;
  bool committed_ = false;
};

}  // namespace megatron
