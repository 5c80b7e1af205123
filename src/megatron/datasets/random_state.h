// The random number generators of numpy and torch that determine the order of samples: numpy's
// RandomState (MT19937) and default_rng (PCG64), and torch.randperm.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace megatron {

/// numpy.random.RandomState(seed). All draws equal numpy's.
class RandomState {
 public:
  explicit RandomState(std::uint32_t seed) : engine_(seed) {}
  /// RandomState(words), seeded with an array of at least one word.
  explicit RandomState(std::span<const std::uint32_t> words);

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

  /// Shuffles a one-dimensional array as RandomState.shuffle does.
  template <class T>
  void shuffle(std::span<T> values) {
    constexpr std::size_t kBlock = 64;  // random numbers drawn ahead, so that prefetches overlap
    std::array<std::size_t, kBlock> partners;
    std::size_t last = values.empty() ? 0 : values.size() - 1;
    while (last > 0) {
      const std::size_t count = std::min(kBlock, last);
      for (std::size_t i = 0; i < count; ++i) {
        partners[i] = interval(last - i);
        __builtin_prefetch(&values[partners[i]], 1);
      }
      for (std::size_t i = 0; i < count; ++i) std::swap(values[last - i], values[partners[i]]);
      last -= count;
    }
  }

 private:
  std::uint64_t next_uint64() {
    const std::uint64_t high = engine_();
    return high << 32 | engine_();
  }
  double next_double();
  std::mt19937 engine_;
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
