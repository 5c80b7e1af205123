// A table of the pairs of adjacent tokens in a text and their counts.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// A pair of tokens. The trainer uses the last three members to gather the words in which the pair
/// has just arisen.
struct PairCount {
  static constexpr std::uint64_t kDropped = ~std::uint64_t{0};
  std::uint64_t key;  ///< left id · 2³² + right id
  std::int64_t count = 0;
  std::uint64_t last_word = 0;
  std::uint64_t next_place = 0;
  std::uint32_t num_words = 0;
};

/// A hash table of pairs. Their numbers never change.
class PairTable {
 public:
  /// Returns the number of a pair, which is added with count 0 if it is new.
  std::uint32_t find_or_add(std::uint32_t left, std::uint32_t right) {
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = home(key);
    for (; slots_[slot].number != kFree; slot = (slot + 1) & mask)
      if (slots_[slot].key == key) return slots_[slot].number;
    const auto number = static_cast<std::uint32_t>(pairs_.size());
    slots_[slot] = {key, number};
    pairs_.push_back({.key = key});
    if (pairs_.size() * 2 > slots_.size()) grow();
    return number;
  }
  PairCount& operator[](std::uint32_t number) { return pairs_[number]; }
  std::size_t size() const { return pairs_.size(); }

 private:
  static constexpr std::uint32_t kFree = ~0u;
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t number = kFree;
  };
  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }
  void grow() {
    --shift_;
    slots_.assign(slots_.size() * 2, {});
    for (std::uint32_t number = 0; number < pairs_.size(); ++number) {
      std::size_t slot = home(pairs_[number].key);
      while (slots_[slot].number != kFree) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = {pairs_[number].key, number};
    }
  }

  int shift_ = 64 - 12;
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << 12);
  std::vector<PairCount> pairs_;
};

}  // namespace megatron
