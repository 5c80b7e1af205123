#include "megatron/datasets/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace megatron {

OutputLock::OutputLock(fs::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

OutputLock::OutputLock(OutputLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

std::optional<OutputLock> OutputLock::try_acquire(const fs::path& path) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) throw_file_error("create lock", path, errno);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      ::close(descriptor);
      if (code == EINTR) continue;
      if (code == EWOULDBLOCK) return std::nullopt;
      throw_file_error("lock", path, code);
    }
    // A process that held the lock may have removed the name since open().
    struct stat own {
    }, named{};
    const bool is_current = ::fstat(descriptor, &own) == 0 && ::stat(path.c_str(), &named) == 0 &&
                            own.st_ino == named.st_ino && own.st_dev == named.st_dev;
    if (is_current) return OutputLock(path, descriptor);
    ::close(descriptor);
  }
}

OutputLock::~OutputLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

bool is_locked(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

void remove_leftovers(const fs::path& folder,
                      const std::function<bool(const std::string& name)>& is_leftover) {
  std::vector<fs::path> leftovers;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored))
    if (is_leftover(file.path().filename().string())) leftovers.push_back(file.path());
  for (const fs::path& leftover : leftovers) fs::remove(leftover, ignored);
}

void remove_leftovers(const std::string& start) {
  const fs::path path(start);
  const std::string begin = path.filename().string() + ".";
  remove_leftovers(path.has_parent_path() ? path.parent_path() : fs::path("."),
                   [&](const std::string& name) {
                     return name.size() > begin.size() && name.starts_with(begin) &&
                            std::isdigit(static_cast<unsigned char>(name[begin.size()])) != 0;
                   });
}

}  // namespace megatron
