// Places extents in a file: best fit among the freed ones, whose free neighbours are merged at
// once, else at the end. It only computes offsets.
#pragma once

#include <cstdint>
#include <map>

namespace megatron {

/// A range of bytes of a file.
struct Extent {
  std::uint64_t offset = 0, bytes = 0;
  bool operator==(const Extent&) const = default;
};

class ExtentAllocator {
 public:
  /// Offsets and sizes are multiples of `alignment`, a power of two.
  explicit ExtentAllocator(std::uint64_t alignment) : alignment_(alignment) {}

  /// Returns an extent of at least `bytes` bytes that overlaps no other one in use.
  Extent allocate(std::uint64_t bytes);
  /// Frees an extent that allocate() returned.
  void free(const Extent& extent);

  /// Returns the size of the file: the end of the last extent ever in use.
  std::uint64_t end() const { return end_; }
  std::uint64_t bytes_in_use() const { return in_use_; }

 private:
  const std::uint64_t alignment_;
  std::uint64_t end_ = 0, in_use_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;          ///< size by offset
  std::multimap<std::uint64_t, std::uint64_t> by_size_;  ///< offset by size; the same extents

  void insert(std::uint64_t offset, std::uint64_t bytes);
  void erase(std::map<std::uint64_t, std::uint64_t>::iterator extent);
};

}  // namespace megatron
