// A lock file that allows only one run at a time to write below a folder. The file says who holds
// the lock. The kernel releases the lock when the process ends for any reason.
#pragma once

#include <filesystem>
#include <string>

#include "megatron/base/descriptor.h"

namespace megatron {

inline constexpr const char* kLockFile = ".lock";

/// Holds `folder`/.lock until destruction. Throws a UserError that names process and host when
/// another run holds it. On a file system without locks, is_enforced() is false and nothing is
/// held.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// Returns whether the locked file is still the one at its path. It is not when the folder has
  /// been removed or replaced.
  bool is_in_place() const;
  bool is_enforced() const { return is_enforced_; }

 private:
  bool acquire();

  std::filesystem::path path_;
  Descriptor descriptor_;
  bool is_enforced_ = true;
};

}  // namespace megatron
