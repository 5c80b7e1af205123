// Memory-mapped files, atomic writes and file locks. All errors are UserErrors that name the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "megatron/base/descriptor.h"
#include "megatron/base/file_system.h"

namespace megatron {

namespace fs = std::filesystem;

/// Throws the UserError for a system call that failed with errno `code`, such as "cannot <action>
/// <path>: No space left on device (ENOSPC)", with a fix.
[[noreturn]] void throw_file_error(const std::string& action, const fs::path& path, int code);

/// Returns the folder of a path; "." if the path names none.
fs::path parent_of(const fs::path& path);

/// Returns whether `path` still names the open file.
bool is_named(int descriptor, const fs::path& path);

/// A read-only memory map of a whole file. The bytes are valid as long as the object lives.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Throws a UserError if `path` is a device, which may have no end.
void refuse_device(const fs::path& path);

/// Reads a whole file or pipe, but no device. UserError if it has more than `max_bytes`.
std::string read_file(const fs::path& path, std::uint64_t max_bytes = UINT64_MAX);

/// Writes a temporary file in the same folder, fsyncs it and renames it to `path`. Readers see
/// either the old file or the new one.
void write_file_atomically(const fs::path& path, std::string_view content,
                           FileSystem& files = default_file_system());

/// Writes and fsyncs a file in place. Use it only in folders that are not read yet.
void write_file(const fs::path& path, std::string_view content,
                FileSystem& files = default_file_system());

/// Calls fsync on a folder, which makes the names in it durable.
void sync_folder(const fs::path& folder, FileSystem& files = default_file_system());

/// Creates the folder and its parents.
void create_directories(const fs::path& path, FileSystem& files = default_file_system());

/// Removes a file, or a folder and its contents. Does nothing if `path` does not exist. Does not
/// follow links.
void remove_tree(const fs::path& path, FileSystem& files = default_file_system());

/// Writes one file through a large buffer. Every failed write throws a UserError with the path.
/// Call close() at the end: the destructor cannot report errors.
class FileWriter {
 public:
  explicit FileWriter(const fs::path& path, FileSystem& files = default_file_system());
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  template <class T>
  void write_values(std::span<const T> values) {
    write(values.data(), values.size_bytes());
  }
  std::uint64_t position() const { return position_; }
  /// Writes the buffer and closes the file. If `sync`, calls fsync before.
  void close(bool sync = false);

 private:
  void flush();
  fs::path path_;
  FileSystem& files_;
  int descriptor_ = -1;
  std::uint64_t position_ = 0;
  std::string buffer_;
};

/// What becomes of a lock's file when the lock is released.
enum class LockFile { keep, remove };

/// Holds an exclusive advisory lock on `path` until destruction, and creates the file if needed.
/// Other processes and other threads of this one are excluded alike.
class FileLock {
 public:
  /// Blocks until no other process or thread holds the lock.
  explicit FileLock(const fs::path& path, LockFile at_end = LockFile::keep);
  /// Takes the lock; nullopt if another process or thread holds it. Throws a UserError if the file
  /// cannot be created.
  static std::optional<FileLock> try_lock(const fs::path& path, LockFile at_end = LockFile::keep);
  /// Returns whether another process or thread holds the lock at this moment. Creates no file.
  static bool is_held(const fs::path& path);
  FileLock(FileLock&& other) noexcept = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(fs::path path, Descriptor descriptor, LockFile at_end);
  fs::path path_;
  Descriptor descriptor_;
  LockFile at_end_ = LockFile::keep;
};

}  // namespace megatron
