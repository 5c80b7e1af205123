#include "megatron/parallel/shared_memory/byte_copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

namespace megatron {
namespace {

constexpr std::int64_t kLine = 64;

void copy_cached(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// Copies whole cache lines, so that no line is read before it is written. `to` must be aligned.
void copy_non_temporal(std::byte* to, const std::byte* from, std::int64_t bytes) {
  for (std::int64_t begin = 0; begin < bytes; begin += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + begin);
    auto* target = reinterpret_cast<__m128i*>(to + begin);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                  c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
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

void store_fence() { _mm_sfence(); }

}  // namespace megatron
