// The random number generators of numpy and torch that determine the order of samples: numpy's
// RandomState (MT19937) and default_rng (PCG64), and torch.randperm.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace megatron {

/// MT19937 (Matsumoto and Nishimura, 1998), which makes the same numbers as std::mt19937 and numpy,
/// 624 at a time in loops that the compiler vectorizes, and hands out many at once.
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

/// numpy.random.RandomState(seed). All draws equal numpy's.
class RandomState {
 public:
  explicit RandomState(std::uint32_t seed) : engine_(seed) {}
  /// RandomState(words), seeded with an array of at least one word.
  explicit RandomState(std::span<const std::uint32_t> words) : engine_(words) {}

  /// Returns binomial(1, probability): whether an event with this probability happens.
  bool bernoulli(double probability);

  /// Returns random(): a uniform number in [0, 1).
  double uniform() { return next_double(); }

  /// Returns geometric(probability) for a probability below 1/3: the number of trials up to the
  /// first success.
  std::int64_t geometric(double probability);

  /// Returns the index that choice() draws with these probabilities, which sum to 1.
  std::size_t choice(std::span<const double> probabilities);

  /// Returns a uniform integer in [0, max], drawn by masked rejection.
  std::uint64_t interval(std::uint64_t max) {
    if (max == 0) return 0;
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
    std::uint64_t value = 0;
    do {
      value = mask <= 0xffffffffu ? engine_() : next_uint64();
      value &= mask;
    } while (value > max);
    return value;
  }

  /// Shuffles a one-dimensional array as RandomState.shuffle does. Random numbers are drawn ahead,
  /// so that the cache misses of several swaps overlap.
  template <class T>
  void shuffle(std::span<T> values) {
    std::size_t last = values.empty() ? 0 : values.size() - 1;
    for (; last > kMax32; --last) std::swap(values[last], values[interval(last)]);
    constexpr std::size_t kAhead = 48;
    Partners partners;
    while (last > 0) {
      const std::size_t count = draw_partners(last, partners);
      const auto fetch = [&](std::size_t i) { __builtin_prefetch(&values[partners[i]], 1); };
      const auto swap = [&](std::size_t i) { std::swap(values[last - i], values[partners[i]]); };
      for (std::size_t i = 0; i < std::min(kAhead, count); ++i) fetch(i);
      std::size_t i = 0;
      for (; i + kAhead < count; ++i) {
        fetch(i + kAhead);
        swap(i);
      }
      for (; i < count; ++i) swap(i);
      last -= count;
    }
  }

  /// Draws what shuffle() of so many values draws.
  void skip_shuffle(std::size_t size);

 private:
  static constexpr std::size_t kMax32 = 0xffffffffu;
  using Partners = std::array<std::uint32_t, 2048>;
  /// Fills `partners` with uniform numbers in [0, last], [0, last − 1], … and returns how many: all
  /// or down to [0, 1]. `last` is from 1 to kMax32.
  std::size_t draw_partners(std::size_t last, Partners& partners);
  std::uint64_t next_uint64() {
    const std::uint64_t high = engine_();
    return high << 32 | engine_();
  }
  double next_double();
  Mt19937 engine_;
};

/// numpy.random.default_rng(seed): SeedSequence, PCG64 and bounded 32-bit integers.
class Pcg64 {
 public:
  explicit Pcg64(std::uint32_t seed);

  /// Returns default_rng(seed).integers(low, high, size=count, dtype=int32), uniform in [low,
  /// high).
  std::vector<std::int32_t> integers(std::int32_t low, std::int32_t high, std::size_t count);

 private:
  __extension__ using Uint128 = unsigned __int128;
  std::uint64_t next_uint64();
  std::uint32_t next_uint32();
  std::uint32_t bounded(std::uint32_t range);

  Uint128 state_ = 0, increment_ = 0;
  std::uint32_t spare_ = 0;
  bool has_spare_ = false;
};

/// Returns torch.randperm(count) of a CPU generator seeded with `seed`.
std::vector<std::int64_t> torch_randperm(std::int64_t count, std::uint64_t seed);

}  // namespace megatron
