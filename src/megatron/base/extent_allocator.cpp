#include "megatron/base/extent_allocator.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

Extent ExtentAllocator::allocate(std::uint64_t bytes) {
  bytes = std::max(alignment_, (bytes + alignment_ - 1) & ~(alignment_ - 1));
  in_use_ += bytes;
  const auto best = by_size_.lower_bound(bytes);
  if (best == by_size_.end()) {
    const Extent extent{end_, bytes};
    end_ += bytes;
    return extent;
  }
  const auto [size, offset] = *best;
  erase(free_.find(offset));
  if (size > bytes) insert(offset + bytes, size - bytes);
  return {offset, bytes};
}

void ExtentAllocator::free(const Extent& extent) {
  if (extent.bytes == 0) return;
  MEGATRON_CHECK(extent.offset + extent.bytes <= end_ && extent.bytes <= in_use_, "an extent of ",
                 extent.bytes, " bytes at ", extent.offset, " is outside the file of ", end_);
  in_use_ -= extent.bytes;
  std::uint64_t begin = extent.offset, end = extent.offset + extent.bytes;
  auto after = free_.lower_bound(begin);
  MEGATRON_CHECK(after == free_.end() || after->first >= end, "extent ", begin, " is freed twice");
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    MEGATRON_CHECK(before->first + before->second <= begin, "extent ", begin, " is freed twice");
    if (before->first + before->second == begin) {
      begin = before->first;
      erase(before);
    }
  }
  if (after != free_.end() && after->first == end) {
    end += after->second;
    erase(after);
  }
  insert(begin, end - begin);
}

void ExtentAllocator::insert(std::uint64_t offset, std::uint64_t bytes) {
  free_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void ExtentAllocator::erase(std::map<std::uint64_t, std::uint64_t>::iterator extent) {
  auto [first, last] = by_size_.equal_range(extent->second);
  by_size_.erase(
      std::find_if(first, last, [&](const auto& entry) { return entry.second == extent->first; }));
  free_.erase(extent);
}

}  // namespace megatron
