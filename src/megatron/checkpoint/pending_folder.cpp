#include "megatron/checkpoint/pending_folder.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/stale_temporaries.h"

namespace megatron {
namespace {

constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 20;

/// "/a/b/" → "/a/b": the temporary folder must be a sibling of the final one.
fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path backup_path(const fs::path& path) { return path.string() + ".old" + temporary_suffix(); }

[[noreturn]] void throw_no_space(const fs::path& folder, const std::string& got) {
  throw UserError({"not enough free space at " + folder.string(), got,
                   "free space there, or choose another folder"});
}

/// Checks this user's quota, which statvfs does not report. File systems that cannot preallocate
/// are accepted.
void check_quota(const fs::path& folder, std::uint64_t bytes, FileSystem& files) {
  const fs::path path = folder / (".space.tmp." + std::to_string(::getpid()));
  const int descriptor = files.create(path);
  if (descriptor < 0) throw_file_error("create", path, errno);
  const int code = files.preallocate(descriptor, bytes) == 0 ? 0 : errno;
  files.close(descriptor);
  try_remove_tree(path, files);
  if (code == EDQUOT)
    throw_no_space(folder,
                   "your quota has no room for the " + std::to_string(bytes) + " bytes needed");
  if (code == ENOSPC)
    throw_no_space(folder,
                   "the disk has no room for the " + std::to_string(bytes) + " bytes needed");
}

}  // namespace

void require_free_space(const fs::path& folder, std::uint64_t bytes, FileSystem& files) {
  const std::uint64_t needed = bytes + kSpareBytes;
  const auto free = files.free_bytes(folder);
  if (free && *free < needed)
    throw_no_space(folder, std::to_string(*free) + " bytes are free, " + std::to_string(needed) +
                               " are needed");
  check_quota(folder, needed, files);
}

void remove_folder_atomically(const fs::path& folder, FileSystem& files) {
  const fs::path path = without_trailing_slash(folder);
  const fs::path unnamed = path.string() + temporary_suffix();
  if (files.rename(path, unnamed) != 0) throw_file_error("remove", path, errno);
  sync_folder(parent_of(path), files);
  remove_tree(unnamed, files);
}

PendingFolder::PendingFolder(const fs::path& final_path, FileSystem& files)
    : files_(files), final_path_(without_trailing_slash(final_path)) {
  path_ = final_path_.string() + temporary_suffix();
  remove_tree(path_, files_);
  try {
    megatron::create_directories(path_, files_);
  } catch (const UserError&) {
    try_remove_tree(path_, files_);
    throw;
  }
}

PendingFolder::~PendingFolder() {
  if (!committed_) try_remove_tree(path_, files_);
}

void PendingFolder::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    if (entry.is_directory()) sync_folder(entry.path(), files_);
  }
  sync_folder(path_, files_);
  const fs::path replaced = rename_into_place();
  committed_ = true;
  sync_folder(parent_of(final_path_), files_);
  if (!replaced.empty()) try_remove_tree(replaced, files_);
}

fs::path PendingFolder::rename_into_place() {
  if (fs::exists(final_path_)) {
    if (files_.exchange(path_, final_path_) == 0) return path_;
    const fs::path backup = backup_path(final_path_);
    if (files_.rename(final_path_, backup) != 0) throw_file_error("rename", final_path_, errno);
    if (files_.rename(path_, final_path_) == 0) return backup;
    const int code = errno;
    files_.rename(backup, final_path_);
    throw_file_error("rename to", final_path_, code);
  }
  if (files_.rename(path_, final_path_) != 0) throw_file_error("rename to", final_path_, errno);
  return {};
}

PendingFolder begin_new_folder(const fs::path& folder, std::uint64_t bytes) {
  require_empty_folder(folder);
  const fs::path path = without_trailing_slash(fs::absolute(folder).lexically_normal());
  megatron::create_directories(path.parent_path());
  remove_stale_temporaries_of(path);
  require_free_space(path.parent_path(), bytes);
  return PendingFolder(folder);
}

}  // namespace megatron
