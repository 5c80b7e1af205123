// Reads text files, plain or compressed with gzip or zstd. The first bytes determine the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "megatron/base/files.h"
#include "megatron/base/stop_event.h"

namespace megatron {

/// The name that stands for the standard input.
inline constexpr const char* kStandardInput = "-";

class TextStream {
 public:
  virtual ~TextStream() = default;
  /// Reads up to `size` bytes and returns their number; 0 at the end. Throws a UserError with the
  /// file when it cannot be read or is damaged.
  virtual std::size_t read(char* data, std::size_t size) = 0;
  /// Passes over `size` bytes. Throws a UserError when there are fewer.
  virtual void skip(std::uint64_t size);
  /// Returns the number of (compressed) bytes of the file consumed so far.
  virtual std::uint64_t bytes_read() const = 0;
};

/// Opens a file, or the standard input for kStandardInput. It may hold several gzip members or zstd
/// frames, also with long windows. The standard input ends early once `stop` is set, which must
/// then outlive the stream.
std::unique_ptr<TextStream> open_text(const fs::path& path, const StopEvent* stop = nullptr);

}  // namespace megatron
