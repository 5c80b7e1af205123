// Bytes of a text file, plain or compressed with gzip or zstd (recognised by their first bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "megatron/base/files.h"

namespace megatron {

class TextStream {
 public:
  virtual ~TextStream() = default;
  /// Fills up to `size` bytes; 0 at the end. A UserError names the file when it cannot be read or
  /// is damaged.
  virtual std::size_t read(char* data, std::size_t size) = 0;
  /// Bytes of the file itself that were used so far.
  virtual std::uint64_t bytes_read() const = 0;
};

/// Opens a file; gzip members and zstd frames (also with long windows) may follow each other.
std::unique_ptr<TextStream> open_text(const fs::path& path);

}  // namespace megatron
