// Keeps two processes from writing the same dataset or index at once, and removes what
// killed ones left.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "megatron/base/files.h"

namespace megatron {

/// Holds an exclusive lock file, which the destructor removes.
class OutputLock {
 public:
  /// Takes the lock on `path`; nullopt if another process or object holds it. Throws a UserError if
  /// the file cannot be created.
  static std::optional<OutputLock> try_acquire(const fs::path& path);
  OutputLock(OutputLock&& other) noexcept;
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();

 private:
  OutputLock(fs::path path, int descriptor);
  fs::path path_;
  int descriptor_;
};

/// Returns whether another process holds the FileLock on `path` at this moment.
bool is_locked(const fs::path& path);

/// Removes the files of a folder whose name `is_leftover`. The caller must hold a lock that writers
/// of such files hold.
void remove_leftovers(const fs::path& folder,
                      const std::function<bool(const std::string& name)>& is_leftover);
/// Removes the files whose path is `start`, a dot and a number, and possibly more: temporary files
/// of processes that were killed.
void remove_leftovers(const std::string& start);

}  // namespace megatron
