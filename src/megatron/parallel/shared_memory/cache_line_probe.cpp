#include "megatron/parallel/shared_memory/cache_line_probe.h"

#include <chrono>

namespace megatron {
namespace {

constexpr std::uint64_t kSteps = 8;
constexpr std::chrono::nanoseconds kNearSteps(kSteps * 60);

std::uint64_t first_of(std::uint64_t turn) { return 37 * turn; }

/// Returns the next line. Every turn has another order, because CPUs learn to prefetch lines that
/// are always read together.
std::uint64_t after(std::uint64_t line, std::uint64_t turn) { return 5 * line + 2 * turn + 1; }

}  // namespace

void CacheLineProbe::touch(std::uint64_t turn) {
  std::uint64_t line = first_of(turn) % kLines;
  for (std::uint64_t step = 0; step <= kSteps; ++step) {
    const std::uint64_t next = after(line, turn) % kLines;
    lines_[line].next.store(next, std::memory_order_relaxed);
    line = next;
  }
}

bool CacheLineProbe::is_far(std::uint64_t turn) const {
  // The first load also brings in the page's translation.
  std::uint64_t line = lines_[first_of(turn) % kLines].next.load(std::memory_order_relaxed);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t step = 0; step < kSteps; ++step)
    line = lines_[line % kLines].next.load(std::memory_order_relaxed);
  const auto time = std::chrono::steady_clock::now() - begin;
  return time > kNearSteps;
}

}  // namespace megatron
