// The interface through which data files are read at any offset: from local disks, web servers and
// object stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

}  // namespace megatron
