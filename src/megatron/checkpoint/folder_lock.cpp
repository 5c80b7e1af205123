#include "megatron/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/machine.h"

namespace megatron {
namespace {

std::string description_of_this_process() {
  char time[32] = {};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", ::localtime_r(&now, &local));
  return "process " + std::to_string(::getpid()) + " on host " + host_name() + ", since " + time;
}

/// Describes the holder of the lock for an error message. The file is empty when the disk was full.
std::string holder_in(int descriptor) {
  char text[512];
  const ssize_t count = ::pread(descriptor, text, sizeof text, 0);
  return count > 0 ? "held by " + std::string(text, static_cast<std::size_t>(count))
                   : "its holder left no name";
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : path_(folder / kLockFile) {
  while (!acquire()) {
  }
  const std::string text = description_of_this_process();
  if (::ftruncate(descriptor_.number(), 0) != 0 ||
      ::pwrite(descriptor_.number(), text.data(), text.size(), 0) < 0)
    return;  // the lock is held even if the holder's name cannot be written
}

/// Returns false when the last holder removed the file between open() and flock().
bool FolderLock::acquire() {
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!descriptor_.is_open()) throw_file_error("create lock", path_, errno);
  const int result = ::flock(descriptor_.number(), LOCK_EX | LOCK_NB), code = errno;
  if (result != 0 && code == EWOULDBLOCK)
    throw UserError({"another run writes into " + path_.parent_path().string(),
                     holder_in(descriptor_.number()),
                     "give each run its own folder, or end that process"});
  is_enforced_ = result == 0;
  return is_in_place();
}

FolderLock::~FolderLock() {
  if (is_enforced_ && is_in_place()) ::unlink(path_.c_str());
}

bool FolderLock::is_in_place() const { return is_named(descriptor_.number(), path_); }

}  // namespace megatron
