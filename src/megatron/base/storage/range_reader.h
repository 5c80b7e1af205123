// The interface through which data files are read at any offset: from local disks, web servers and
// object stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "megatron/base/files.h"

namespace megatron {

/// A file of a fixed size. Thread-safe.
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  /// Returns the path or URL, for error messages.
  virtual std::string name() const = 0;
  /// Returns the size in bytes.
  virtual std::uint64_t size() const = 0;
  /// Identifies the contents: a file that is replaced gets another version. Empty if unknown.
  virtual std::string version() const = 0;
  /// Fills `bytes` from `offset`. Throws a UserError when the file cannot be read, has become
  /// shorter or has been replaced since it was opened.
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

/// Reads a local file with pread.
class LocalRangeReader : public RangeReader {
 public:
  explicit LocalRangeReader(fs::path path);

  std::string name() const override { return path_.string(); }
  std::uint64_t size() const override { return size_; }
  std::string version() const override { return version_; }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override;

 private:
  fs::path path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
  std::string version_;  ///< size and time of the last change
};

/// Fills `bytes` from `offset` of an open file. Throws a UserError that names `path` on failure,
/// also when the file is too short.
void read_at(int descriptor, const fs::path& path, std::uint64_t offset,
             std::span<std::byte> bytes);

}  // namespace megatron
