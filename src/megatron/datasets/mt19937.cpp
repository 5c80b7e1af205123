#include "megatron/datasets/mt19937.h"

#include <algorithm>

namespace megatron {
namespace {

constexpr std::uint32_t twisted(std::uint32_t value) { return value ^ (value >> 30); }

/// Returns the next state of a word whose neighbor is `after` and whose partner is `far`.
constexpr std::uint32_t advanced(std::uint32_t word, std::uint32_t after, std::uint32_t far) {
  const std::uint32_t mixed = (word & 0x80000000u) | (after & 0x7fffffffu);
  return far ^ (mixed >> 1) ^ ((0u - (mixed & 1u)) & 0x9908b0dfu);
}

constexpr std::uint32_t tempered(std::uint32_t word) {
  word ^= word >> 11;
  word ^= word << 7 & 0x9d2c5680u;
  word ^= word << 15 & 0xefc60000u;
  return word ^ word >> 18;
}

}  // namespace

Mt19937::Mt19937(std::uint32_t value) { seed(value); }

void Mt19937::seed(std::uint32_t value) {
  state_[0] = value;
  for (std::size_t i = 1; i < kSize; ++i)
    state_[i] = 1812433253u * twisted(state_[i - 1]) + static_cast<std::uint32_t>(i);
}

Mt19937::Mt19937(std::span<const std::uint32_t> words) {
  seed(19650218u);
  std::size_t at = 1;
  const auto advance = [&] {
    if (++at < kSize) return;
    state_[0] = state_[kSize - 1];
    at = 1;
  };
  for (std::size_t i = 0; i < std::max(kSize, words.size()); ++i) {
    const std::size_t word = i % words.size();
    state_[at] = (state_[at] ^ (twisted(state_[at - 1]) * 1664525u)) + words[word] +
                 static_cast<std::uint32_t>(word);
    advance();
  }
  for (std::size_t i = 0; i + 1 < kSize; ++i) {
    state_[at] =
        (state_[at] ^ (twisted(state_[at - 1]) * 1566083941u)) - static_cast<std::uint32_t>(at);
    advance();
  }
  state_[0] = 0x80000000u;
}

/// The numbers of turns of the vectorized loops are multiples of the vector's length.
void Mt19937::refill() {
  constexpr std::size_t kFar = 397, kNear = kSize - kFar, kVector = 4;
  constexpr std::size_t kWhole = kNear / kVector * kVector;
  std::uint32_t* const s = state_.data();
  for (std::size_t i = 0; i < kWhole; ++i) s[i] = advanced(s[i], s[i + 1], s[i + kFar]);
  for (std::size_t i = kWhole; i < kNear; ++i) s[i] = advanced(s[i], s[i + 1], s[i + kFar]);
  static_assert((kFar - 1) % kVector == 0 && kSize % kVector == 0);
  for (std::size_t i = 0; i < kFar - 1; ++i)
    s[kNear + i] = advanced(s[kNear + i], s[kNear + i + 1], s[i]);
  s[kSize - 1] = advanced(s[kSize - 1], s[0], s[kFar - 1]);
  for (std::size_t i = 0; i < kSize; ++i) words_[i] = tempered(s[i]);
  next_ = 0;
}

}  // namespace megatron
