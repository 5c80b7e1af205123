#include "megatron/base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace megatron {
namespace {

/// Returns whether errno says that the file does not support fsync, as for pipes and devices.
int unless_unsupported(int result) {
  return result != 0 && (errno == EINVAL || errno == EROFS) ? 0 : result;
}

}  // namespace

int FileSystem::create(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

ssize_t FileSystem::write(int descriptor, const void* data, std::size_t size) {
  return ::write(descriptor, data, size);
}

int FileSystem::sync(int descriptor) { return unless_unsupported(::fsync(descriptor)); }

int FileSystem::close(int descriptor) { return ::close(descriptor); }

int FileSystem::sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  const int result = unless_unsupported(::fsync(descriptor)), code = errno;
  ::close(descriptor);
  errno = code;
  return result;
}

int FileSystem::make_folder(const std::filesystem::path& folder) {
  return ::mkdir(folder.c_str(), 0755);
}

int FileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::rename(from.c_str(), to.c_str());
}

int FileSystem::link(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::link(from.c_str(), to.c_str());
}

int FileSystem::exchange(const std::filesystem::path& a, const std::filesystem::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}

int FileSystem::remove(const std::filesystem::path& path) { return std::remove(path.c_str()); }

int FileSystem::preallocate(int descriptor, std::uint64_t bytes) {
  return bytes == 0 ? 0 : ::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes));
}

std::optional<std::uint64_t> FileSystem::free_bytes(const std::filesystem::path& folder) const {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

FileSystem& default_file_system() {
  static FileSystem real;
  return real;
}

}  // namespace megatron
