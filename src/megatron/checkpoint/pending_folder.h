// A folder that is committed atomically: it is written under a temporary name beside its final
// path, flushed, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>

#include "megatron/base/file_system.h"

namespace megatron {

namespace fs = std::filesystem;

/// Throws a UserError unless the disk of `folder`, and this user's quota there, has `bytes` and a
/// small reserve available.
void require_free_space(const fs::path& folder, std::uint64_t bytes,
                        FileSystem& files = default_file_system());

/// Removes a committed folder. It is renamed first, so that no reader finds a partial folder.
void remove_folder_atomically(const fs::path& folder, FileSystem& files = default_file_system());

/// Creates `final_path`.tmp-<host>-<pid>. commit() renames it to the final path and, in the same
/// step, moves an older folder of that name aside. Writers must flush each file in it. The
/// destructor removes an uncommitted folder.
class PendingFolder {
 public:
  explicit PendingFolder(const fs::path& final_path, FileSystem& files = default_file_system());
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();

  const fs::path& path() const { return path_; }
  void commit();

 private:
  /// Returns the new path of the replaced folder; empty when there was none.
  fs::path rename_into_place();

  FileSystem& files_;
  fs::path final_path_, path_;
  bool committed_ = false;
};

/// Begins a folder of `bytes`, which must not exist, be empty, or hold only what interrupted
/// writers left. Creates its parents.
PendingFolder begin_new_folder(const fs::path& folder, std::uint64_t bytes);

}  // namespace megatron
