// Measures the cache distance of two ranks: the time to read lines that the other rank has just
// written. Cores that share a cache take tens of nanoseconds per line. Cores on other sockets or
// chiplets take more than a hundred, and then going through memory is faster.
#pragma once

#include <atomic>
#include <cstdint>

namespace megatron {

/// A page of one rank in shared memory. Zero-filled memory is a valid object.
class CacheLineProbe {
 public:
  /// Brings some lines, chosen by `turn`, into the cache of the caller, their only writer.
  void touch(std::uint64_t turn);
  /// Returns whether the caller seems to share no cache with the rank that touched the lines. It
  /// may also return true when touch() was long ago.
  bool is_far(std::uint64_t turn) const;

 private:
  static constexpr std::uint64_t kLines = 64;
  struct alignas(64) Line {
    std::atomic<std::uint64_t> next;  ///< Index of the line to read after this one.
  };
  Line lines_[kLines];
};

}  // namespace megatron
