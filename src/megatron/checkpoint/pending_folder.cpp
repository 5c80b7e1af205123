#include "megatron/checkpoint/pending_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

constexpr const char* kMark = ".tmp-";
constexpr const char* kFileMark = ".tmp.";  ///< of write_file_atomically
constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 20;

void remove_tree(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) throw UserError({"cannot remove " + path.string(), code.message(), "remove it by hand"});
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw UserError({"cannot rename " + from.string() + " to " + to.string(), std::strerror(errno), ""});
}

/// Swaps two names in one step; false where the file system cannot.
bool exchange(const fs::path& a, const fs::path& b) { return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0; }

std::string unique_suffix() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + "-" + std::to_string(::getpid());
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// "/a/b/" → "/a/b": the temporary name must be a neighbour.
fs::path without_trailing_slash(fs::path path) { return path.has_filename() ? path : path.parent_path(); }

}  // namespace

FolderLock::FolderLock(const fs::path& folder) {
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) throw UserError({"cannot open folder " + folder.string(), std::strerror(errno), "check the path"});
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw UserError({"another process is writing into " + folder.string(), "", "give each run its own folder"});
  }
}

FolderLock::~FolderLock() { ::close(descriptor_); }

void require_free_space(const fs::path& folder, std::uint64_t bytes) {
  std::error_code code;
  const fs::space_info space = fs::space(folder, code);
  if (code || space.available >= bytes + kSpareBytes) return;
  throw UserError({"not enough free space at " + folder.string(),
                   std::to_string(space.available) + " bytes are free, " + std::to_string(bytes + kSpareBytes) + " are needed",
                   "free space there, or choose another folder"});
}

bool is_uncommitted_name(const std::string& name) { return name.find(kMark) != std::string::npos || name.find(kFileMark) != std::string::npos; }

void remove_uncommitted(const fs::path& root) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (is_uncommitted_name(entry.path().filename().string())) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) remove_tree(path);
}

PendingFolder::PendingFolder(fs::path final_path) : final_path_(without_trailing_slash(std::move(final_path))) {
  path_ = final_path_.string() + kMark + unique_suffix();
  remove_tree(path_);
  megatron::create_directories(path_);
}

PendingFolder::~PendingFolder() {
  std::error_code ignored;  // an error is already on its way; the next save removes what is left
  if (!committed_) fs::remove_all(path_, ignored);
}

void PendingFolder::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(path_)) fsync_path(entry.path());
  fsync_path(path_);
  if (!fs::exists(final_path_)) {
    rename_folder(path_, final_path_);
  } else if (exchange(path_, final_path_)) {
    remove_tree(path_);
  } else {
    const fs::path old = final_path_.string() + ".old" + kMark + unique_suffix();
    rename_folder(final_path_, old);
    rename_folder(path_, final_path_);
    remove_tree(old);
  }
  committed_ = true;
  fsync_path(parent_of(final_path_));
}

}  // namespace megatron
