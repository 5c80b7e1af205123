#include "megatron/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::size_t kWriteBuffer = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& action, const fs::path& path) {
  const int code = errno;
  std::string fix;
  if (code == ENOENT) fix = "check the path";
  if (code == EACCES || code == EROFS) fix = "check the permissions, or choose another folder";
  if (code == ENOSPC || code == EDQUOT) fix = "free space on that disk, or choose another folder";
  throw UserError({"cannot " + action + " " + path.string(), std::strerror(code), fix});
}

void write_all(int descriptor, const char* data, std::size_t size, const fs::path& path) {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path);
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("open", path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || S_ISDIR(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) errno = EISDIR;
    const int code = errno;
    ::close(descriptor);
    errno = code;
    fail("read", path);
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    const int code = errno;
    ::close(descriptor);
    errno = code;
    if (address == MAP_FAILED) fail("map", path);
    data_ = static_cast<const std::byte*>(address);
  } else {
    ::close(descriptor);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("open", path);
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int code = errno;
      ::close(descriptor);
      errno = code;
      fail("read", path);
    }
    if (count == 0) break;
    content.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(descriptor);
  return content;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = path.string() + ".tmp." + std::to_string(::getpid());
  {
    FileWriter writer(temporary);
    writer.write(content);
    writer.close(/*sync=*/true);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("rename to", path);
  fsync_path(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void fsync_path(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("open", path);
  const int result = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  errno = code;
  if (result != 0 && code != EINVAL && code != EROFS) fail("flush", path);
}

void create_directories(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) {
    errno = code.value();
    fail("create folder", path);
  }
}

FileWriter::FileWriter(const fs::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("create", path);
  buffer_.reserve(kWriteBuffer);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, std::size_t size) {
  position_ += size;
  if (buffer_.size() + size > kWriteBuffer) flush();
  if (size >= kWriteBuffer) {
    write_all(descriptor_, static_cast<const char*>(data), size, path_);
  } else {
    buffer_.append(static_cast<const char*>(data), size);
  }
}

void FileWriter::flush() {
  write_all(descriptor_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

void FileWriter::close(bool sync) {
  flush();
  if (sync && ::fsync(descriptor_) != 0 && errno != EINVAL) fail("flush", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close", path_);
}

FileLock::FileLock(const fs::path& path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("create lock", path);
  while (::flock(descriptor_, LOCK_EX) != 0) {
    if (errno != EINTR) fail("lock", path);
  }
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace megatron
