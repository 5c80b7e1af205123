// MT19937 (Matsumoto and Nishimura, 1998), which makes the same numbers as std::mt19937 and numpy,
// 624 at a time in loops that the compiler vectorizes, and hands out many at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace megatron {

class Mt19937 {
 public:
  /// init_genrand(): as std::mt19937(seed).
  explicit Mt19937(std::uint32_t seed);
  /// init_by_array(), of at least one word.
  explicit Mt19937(std::span<const std::uint32_t> words);

  std::uint32_t operator()() {
    if (next_ == kSize) refill();
    return words_[next_++];
  }
  /// Returns at least one of the next numbers, without drawing them.
  std::span<const std::uint32_t> ahead() {
    if (next_ == kSize) refill();
    return std::span(words_).subspan(next_);
  }
  /// Draws numbers that ahead() returned.
  void skip(std::size_t count) { next_ += count; }

 private:
  static constexpr std::size_t kSize = 624;
  void seed(std::uint32_t value);
  void refill();

  std::array<std::uint32_t, kSize> state_, words_;
  std::size_t next_ = kSize;
};

}  // namespace megatron
