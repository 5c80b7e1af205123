#include "megatron/parallel/shared_memory/byte_copy.h"

#include <algorithm>
#include <cstring>

#include "megatron/base/cpu_instructions.h"

namespace megatron {
namespace {

constexpr std::int64_t kLine = kCacheLine;

void copy_cached(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// Copies whole cache lines, so that no line is read before it is written. `to` must be aligned.
void copy_non_temporal(std::byte* to, const std::byte* from, std::int64_t bytes) {
  for (std::int64_t begin = 0; begin < bytes; begin += kLine)
    copy_line_non_temporal(to + begin, from + begin);
}

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, CopyMode mode) {
  if (to == from) return;
  if (mode == CopyMode::cached) return copy_cached(to, from, bytes);
  const std::int64_t head =
      std::min(bytes, static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % kLine));
  const std::int64_t lines = (bytes - head) / kLine * kLine;
  copy_cached(to, from, head);
  copy_non_temporal(to + head, from + head, lines);
  copy_cached(to + head + lines, from + head + lines, bytes - head - lines);
}

}  // namespace megatron
