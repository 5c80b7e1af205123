// How far apart two ranks are for the caches: the time in which one reads lines that the other has
// just written. Cores that share a cache take tens of nanoseconds for a line; cores that do not
// (other sockets or chiplets) take more than a hundred, and then memory is the faster way between
// them.
#pragma once

#include <atomic>
#include <cstdint>

namespace megatron {

/// A page of one rank, in memory that all ranks share. Memory of zeros is valid.
class CacheLineProbe {
 public:
  /// Brings some lines into the cache of the caller, their only writer; which ones depends on
  /// `turn`.
  void touch(std::uint64_t turn);
  /// Whether the caller shares no cache with the rank that renewed the lines a moment ago. A guess:
  /// true also when that was long ago.
  bool is_far(std::uint64_t turn) const;

 private:
  static constexpr std::uint64_t kLines = 64;
  struct alignas(64) Line {
    std::atomic<std::uint64_t> next;  ///< index of the line to read after this one
  };
  Line lines_[kLines];
};

}  // namespace megatron
