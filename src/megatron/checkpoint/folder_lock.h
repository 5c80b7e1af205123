// One run writes below a folder at a time. The lock is a file that says who holds it; the kernel
// releases it when the process ends, however it ends.
#pragma once

#include <filesystem>
#include <string>

namespace megatron {

inline constexpr const char* kLockFile = ".lock";

/// Holds `folder`/.lock until destruction. UserError naming process and host when another run holds
/// it. On a file system without locks it holds nothing (is_enforced()).
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// Whether this object's file is still the one at its path: not when the folder has been removed
  /// or replaced meanwhile.
  bool is_in_place() const;
  bool is_enforced() const { return is_enforced_; }

 private:
  bool acquire();

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool is_enforced_ = true;
};

}  // namespace megatron
