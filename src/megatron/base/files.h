// Files: read-only maps, writes that appear whole or not at all, and locks. Errors are UserErrors
// naming the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "megatron/base/file_system.h"

namespace megatron {

namespace fs = std::filesystem;

/// The UserError for a call that failed with errno `code`: "cannot <action> <path>: No space left
/// on device (ENOSPC)", and what to do.
[[noreturn]] void throw_file_error(const std::string& action, const fs::path& path, int code);

/// A file mapped read-only; the bytes live as long as the object. Movable.
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

/// The whole file as text.
std::string read_file(const fs::path& path);

/// Writes a temporary neighbour, fsyncs it and renames it into place: readers see the old file or
/// the new one.
void write_file_atomically(const fs::path& path, std::string_view content,
                           FileSystem& files = default_file_system());

/// Writes and fsyncs a file in place: for folders that nobody reads yet.
void write_file(const fs::path& path, std::string_view content,
                FileSystem& files = default_file_system());

/// Makes the names in a folder durable.
void sync_folder(const fs::path& folder, FileSystem& files = default_file_system());

/// Creates the folder and its parents.
void create_directories(const fs::path& path, FileSystem& files = default_file_system());

/// Removes a file or a folder with all it holds; nothing when there is none. Links are not
/// followed.
void remove_tree(const fs::path& path, FileSystem& files = default_file_system());

/// A writer of one file through a large buffer that reports every failed write with the path. Call
/// close() to see late errors.
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
  /// Flushes the buffer and closes; with `sync`, to the disk.
  void close(bool sync = false);

 private:
  void flush();
  fs::path path_;
  FileSystem& files_;
  int descriptor_ = -1;
  std::uint64_t position_ = 0;
  std::string buffer_;
};

/// An advisory lock on `path` (created when absent), held until destruction. Blocks; between
/// processes and threads alike.
class FileLock {
 public:
  explicit FileLock(const fs::path& path);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int descriptor_ = -1;
};

}  // namespace megatron
