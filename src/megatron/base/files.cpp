#include "megatron/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

[[noreturn]] void fail(const std::string& action, const fs::path& path) {
  throw_file_error(action, path, errno);
}

std::string fix_for(int code) {
  switch (code) {
    case ENOENT:
      return "check the path";
    case EEXIST:
    case ENOTDIR:
      return "remove the file of that name, or choose another folder";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions, or choose another folder";
    case ENOSPC:
      return "free space on that disk, or choose another folder";
    case EDQUOT:
      return "free some of your quota on that disk, or choose another folder";
    case EFBIG:
      return "raise the file size limit (ulimit -f), or choose another file system";
    case EBADF:
      return "open it for writing";
    case EIO:
    case ESTALE:
      return "check the disk (dmesg), or choose another folder";
    default:
      return {};
  }
}

void write_all(FileSystem& files, int descriptor, const char* data, std::size_t size,
               const fs::path& path) {
  while (size > 0) {
    const ssize_t written = files.write(descriptor, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path);
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

/// Opens and locks a file with flock(`operation`). Returns no descriptor if the operation does not
/// block and another one holds the lock.
Descriptor lock_file(const fs::path& path, int operation) {
  for (;;) {
    Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!descriptor.is_open()) fail("create lock", path);
    const int code = ::flock(descriptor.number(), operation) == 0 ? 0 : errno;
    // Whoever held the lock may have removed the name since open().
    if (code == 0 && is_named(descriptor.number(), path)) return descriptor;
    if (code == EWOULDBLOCK) return Descriptor();
    if (code != 0 && code != EINTR) throw_file_error("lock", path, code);
  }
}

}  // namespace

void throw_file_error(const std::string& action, const fs::path& path, int code) {
  const char* name = ::strerrorname_np(code);
  const std::string got =
      std::strerror(code) + (name ? " (" + std::string(name) + ")" : std::string());
  throw UserError({"cannot " + action + " " + path.string(), got, fix_for(code)});
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool is_named(int descriptor, const fs::path& path) {
  struct stat own {
  }, named{};
  return ::fstat(descriptor, &own) == 0 && ::stat(path.c_str(), &named) == 0 &&
         own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  // Without O_NONBLOCK, opening a named pipe would wait for its writer.
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.is_open()) fail("open", path);
  struct stat status {};
  const int failed = ::fstat(descriptor.number(), &status) != 0 ? errno : 0;
  if (failed != 0 || !S_ISREG(status.st_mode)) {
    const int code = S_ISDIR(status.st_mode) ? EISDIR : failed;
    if (code != 0) throw_file_error("read", path, code);
    throw UserError({"cannot read " + path.string(), "it is not a regular file",
                     "put the file itself there, not a pipe or a device"});
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor.number(), 0);
  if (address == MAP_FAILED) fail("map", path);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void refuse_device(const fs::path& path) {
  std::error_code code;
  if (fs::is_character_file(path, code) || fs::is_block_file(path, code))
    throw UserError({"cannot read " + path.string(), "it is a device", "give a file or a pipe"});
}

std::string read_file(const fs::path& path, std::uint64_t max_bytes) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.is_open()) fail("open", path);
  refuse_device(path);
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor.number(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path);
    if (count == 0) return content;
    content.append(buffer, static_cast<std::size_t>(count));
    if (content.size() > max_bytes)
      throw UserError({"cannot read " + path.string(),
                       "it has more than " + std::to_string(max_bytes) + " bytes", "divide it"});
  }
}

void write_file_atomically(const fs::path& path, std::string_view content, FileSystem& files) {
  const fs::path temporary = path.string() + ".tmp." + std::to_string(::getpid());
  try {
    write_file(temporary, content, files);
    if (files.rename(temporary, path) != 0) fail("rename to", path);
  } catch (const UserError&) {
    files.remove(temporary);
    throw;
  }
  sync_folder(parent_of(path), files);
}

void write_file(const fs::path& path, std::string_view content, FileSystem& files) {
  FileWriter writer(path, files);
  writer.write(content);
  writer.close(/*sync=*/true);
}

void sync_folder(const fs::path& folder, FileSystem& files) {
  if (files.sync_folder(folder) != 0) fail("flush", folder);
}

void create_directories(const fs::path& path, FileSystem& files) {
  std::error_code code;
  if (path.empty() || fs::is_directory(path, code)) return;
  if (!path.has_filename()) return create_directories(path.parent_path(), files);
  create_directories(path.parent_path(), files);
  if (files.make_folder(path) == 0) return sync_folder(parent_of(path), files);
  const int reason = errno;
  if (!fs::is_directory(path, code)) throw_file_error("create folder", path, reason);
}

void remove_tree(const fs::path& path, FileSystem& files) {
  std::error_code code;
  if (fs::is_directory(fs::symlink_status(path, code))) {
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(path, code)) entries.push_back(entry.path());
    if (code) throw_file_error("read folder", path, code.value());
    for (const fs::path& entry : entries) remove_tree(entry, files);
  }
  if (files.remove(path) != 0 && errno != ENOENT) fail("remove", path);
}

FileWriter::FileWriter(const fs::path& path, FileSystem& files) : path_(path), files_(files) {
  descriptor_ = files_.create(path);
  if (descriptor_ < 0) fail("create", path);
  buffer_.reserve(files_.buffer_bytes());
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) files_.close(descriptor_);
}

void FileWriter::write(const void* data, std::size_t size) {
  position_ += size;
  const std::size_t limit = files_.buffer_bytes();
  if (buffer_.size() + size > limit) flush();
  if (size >= limit) {
    write_all(files_, descriptor_, static_cast<const char*>(data), size, path_);
  } else {
    buffer_.append(static_cast<const char*>(data), size);
  }
}

void FileWriter::flush() {
  if (!buffer_.empty()) write_all(files_, descriptor_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

void FileWriter::close(bool sync) {
  flush();
  if (sync && files_.sync(descriptor_) != 0) fail("flush", path_);
  if (files_.close(std::exchange(descriptor_, -1)) != 0) fail("close", path_);
}

FileLock::FileLock(fs::path path, Descriptor descriptor, LockFile at_end)
    : path_(std::move(path)), descriptor_(std::move(descriptor)), at_end_(at_end) {}

FileLock::FileLock(const fs::path& path, LockFile at_end)
    : FileLock(path, lock_file(path, LOCK_EX), at_end) {}

std::optional<FileLock> FileLock::try_lock(const fs::path& path, LockFile at_end) {
  Descriptor descriptor = lock_file(path, LOCK_EX | LOCK_NB);
  if (!descriptor.is_open()) return std::nullopt;
  return FileLock(path, std::move(descriptor), at_end);
}

bool FileLock::is_held(const fs::path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  // A shared lock, so that two who ask at once do not take each other for the holder.
  return descriptor.is_open() && ::flock(descriptor.number(), LOCK_SH | LOCK_NB) != 0 &&
         errno == EWOULDBLOCK;
}

FileLock::~FileLock() {
  if (descriptor_.is_open() && at_end_ == LockFile::remove) ::unlink(path_.c_str());
}

}  // namespace megatron
