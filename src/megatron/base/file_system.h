// The system calls that create and change files. All writes of a checkpoint go through this
// interface, so that tests can count the calls and make each of them fail.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace megatron {

/// The file system of this host. Functions return what POSIX returns: 0, a descriptor or a count on
/// success, −1 with errno set on failure. Tests derive from this class to inject faults.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Creates an empty file and returns a descriptor that is open for writing.
  virtual int create(const std::filesystem::path& path);
  virtual ssize_t write(int descriptor, const void* data, std::size_t size);
  /// Calls fsync. Succeeds if the file does not support it.
  virtual int sync(int descriptor);
  virtual int close(int descriptor);
  /// Calls fsync on a folder, which makes the names in it durable.
  virtual int sync_folder(const std::filesystem::path& folder);
  virtual int make_folder(const std::filesystem::path& folder);
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Gives a file a second name. Fails if the file system does not support it.
  virtual int link(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Swaps two names atomically. Fails if the file system does not support it.
  virtual int exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  /// Removes a file, a link or an empty folder.
  virtual int remove(const std::filesystem::path& path);
  /// Allocates space for an open file, so that a full disk or an exhausted quota is reported before
  /// the data is written.
  virtual int preallocate(int descriptor, std::uint64_t bytes);
  /// Returns the bytes that this user can still write below `folder`, or nullopt if unknown.
  virtual std::optional<std::uint64_t> free_bytes(const std::filesystem::path& folder) const;
  /// The number of bytes that FileWriter buffers before it calls write().
  virtual std::size_t buffer_bytes() const { return std::size_t{1} << 20; }
};

/// Returns the file system of the host.
FileSystem& default_file_system();

}  // namespace megatron
