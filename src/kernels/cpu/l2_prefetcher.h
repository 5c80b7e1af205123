// Prefetches memory into the L2 cache a few lines at a time between pieces of other work, so that
// the work does not wait for memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Covers the cache lines of `runs` runs of `run_bytes` bytes, which lie `stride_bytes` apart.
class L2Prefetcher {
 public:
  L2Prefetcher() = default;
  L2Prefetcher(const void* first, std::int64_t runs, std::int64_t stride_bytes,
               std::int64_t run_bytes)
      : run_(static_cast<const char*>(first)),
        runs_(runs),
        stride_(stride_bytes),
        lines_each_((run_bytes + 2 * kLine - 2) / kLine) {}

  /// Divides the remaining lines into `count` shares of about the same size.
  void divide_into(std::int64_t count) { share_ = (runs_ * lines_each_ + count - 1) / count; }

  /// Prefetches the next share, or the rest of the lines.
  void prefetch_share() {
    for (std::int64_t left = share_; left > 0 && runs_ > 0;) {
      const std::int64_t count = std::min(left, lines_each_ - line_);
      const char* const first = run_ + line_ * kLine;
      for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch(first + i * kLine, 0, 2);
      left -= count;
      line_ += count;
      if (line_ < lines_each_) return;
      line_ = 0;
      run_ += stride_;
      --runs_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* run_ = nullptr;
  std::int64_t runs_ = 0, stride_ = 0, lines_each_ = 0, line_ = 0, share_ = 0;
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
