// The system calls through which files come into being. Everything that a save changes on the disk
// passes through one of these, so that tests can count them and let each of them fail.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace megatron {

/// The disk. Calls answer as POSIX does: 0, a descriptor or a count; −1 with errno set when they
/// fail. Tests derive from it.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// An empty file, open for writing.
  virtual int create(const std::filesystem::path& path);
  virtual ssize_t write(int descriptor, const void* data, std::size_t size);
  /// fsync; success where the file system knows none.
  virtual int sync(int descriptor);
  virtual int close(int descriptor);
  /// Makes the names in a folder durable.
  virtual int sync_folder(const std::filesystem::path& folder);
  virtual int make_folder(const std::filesystem::path& folder);
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Swaps two names in one step; fails where the file system cannot.
  virtual int exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  /// Removes a file, a link or an empty folder.
  virtual int remove(const std::filesystem::path& path);
  /// Sets bytes of an open file aside, so that a full disk or an exhausted quota shows before they
  /// are written.
  virtual int preallocate(int descriptor, std::uint64_t bytes);
  /// What this user may still write below `folder`; nothing when unknown.
  virtual std::optional<std::uint64_t> free_bytes(const std::filesystem::path& folder) const;
  /// How much a writer gathers before it calls write().
  virtual std::size_t buffer_bytes() const { return std::size_t{1} << 20; }
};

/// The real one.
FileSystem& default_file_system();

}  // namespace megatron
