#include "megatron/datasets/random_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

namespace {

/// Returns numpy's SeedSequence(entropy).generate_state(8, uint32) for one word of entropy
/// (O'Neill's seed_seq_fe with a pool of four words).
std::array<std::uint32_t, 8> seed_sequence(std::uint32_t entropy) {
  std::uint32_t hash_constant = 0x43b0d7e5u;
  const auto hash = [&](std::uint32_t value) {
    value ^= hash_constant;
    hash_constant *= 0x931e8875u;
    value *= hash_constant;
    return value ^ (value >> 16);
  };
  const auto mix = [](std::uint32_t x, std::uint32_t y) {
    const std::uint32_t result = 0xca01f9ddu * x - 0x4973f715u * y;
    return result ^ (result >> 16);
  };
  std::array<std::uint32_t, 4> pool;
  for (int i = 0; i < 4; ++i) pool[i] = hash(i == 0 ? entropy : 0);
  for (int source = 0; source < 4; ++source) {
    for (int target = 0; target < 4; ++target) {
      if (source != target) pool[target] = mix(pool[target], hash(pool[source]));
    }
  }
  std::array<std::uint32_t, 8> state;
  std::uint32_t output_constant = 0x8b51f9ddu;
  for (int i = 0; i < 8; ++i) {
    std::uint32_t value = pool[i % 4] ^ output_constant;
    output_constant *= 0x58f38dedu;
    value *= output_constant;
    state[i] = value ^ (value >> 16);
  }
  return state;
}

}  // namespace

/// Each random word is stored where the next partner belongs and counts only if it is small enough,
/// so that no branch depends on it. All partners of a loop share the mask of numpy's rejection.
std::size_t RandomState::draw_partners(std::size_t last, Partners& partners) {
  const std::size_t count = std::min(last, partners.size());
  std::size_t filled = 0;
  while (filled < count) {
    const auto mask =
        static_cast<std::uint32_t>(~std::uint64_t{0} >> std::countl_zero(last - filled));
    const std::size_t end =
        std::min(count, last - (mask >> 1));  // the mask is smaller from here on
    while (filled < end) {
      const std::span<const std::uint32_t> words = engine_.ahead();
      const std::size_t drawn = std::min(words.size(), end - filled);
      for (std::size_t i = 0; i < drawn; ++i) {
        const std::uint32_t value = words[i] & mask;
        partners[filled] = value;
        filled += value <= last - filled;
      }
      engine_.skip(drawn);
    }
  }
  return count;
}

void RandomState::skip_shuffle(std::size_t size) {
  std::size_t last = size > 0 ? size - 1 : 0;
  for (; last > kMax32; --last) interval(last);
  Partners partners;
  while (last > 0) last -= draw_partners(last, partners);
}

double RandomState::next_double() {
  const std::uint32_t high = static_cast<std::uint32_t>(engine_()) >> 5;
  const std::uint32_t low = static_cast<std::uint32_t>(engine_()) >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

/// Inverts the distribution of the rarer outcome of one trial, as numpy's RandomState does.
bool RandomState::bernoulli(double probability) {
  const bool counts_failures = probability > 0.5;
  const double rare = counts_failures ? 1 - probability : probability, frequent = 1 - rare;
  const double at_zero = std::exp(std::log(frequent));
  int drawn = 0;
  double remaining = at_zero, uniform = next_double();
  while (uniform > remaining) {
    if (++drawn > 1) {  // only by rounding
      drawn = 0;
      remaining = at_zero;
      uniform = next_double();
    } else {
      uniform -= remaining;
      remaining = rare * remaining / frequent;
    }
  }
  return (drawn == 1) != counts_failures;
}

std::int64_t RandomState::geometric(double probability) {
  return static_cast<std::int64_t>(
      std::ceil(std::log1p(-next_double()) / std::log1p(-probability)));
}

std::size_t RandomState::choice(std::span<const double> probabilities) {
  std::vector<double> sums(probabilities.size());
  std::partial_sum(probabilities.begin(), probabilities.end(), sums.begin());
  const double last = sums.back(), drawn = next_double();
  for (double& sum : sums) sum /= last;
  return static_cast<std::size_t>(std::ranges::upper_bound(sums, drawn) - sums.begin());
}

Pcg64::Pcg64(std::uint32_t seed) {
  const auto words = seed_sequence(seed);
  const auto pair = [&](int i) { return std::uint64_t{words[i + 1]} << 32 | words[i]; };
  const Uint128 start = Uint128{pair(0)} << 64 | pair(2);
  const Uint128 stream = Uint128{pair(4)} << 64 | pair(6);
  increment_ = stream << 1 | 1;
  next_uint64();
  state_ += start;
  next_uint64();
}

std::uint64_t Pcg64::next_uint64() {
  constexpr Uint128 kMultiplier = Uint128{0x2360ED051FC65DA4u} << 64 | 0x4385DF649FCCF645u;
  state_ = state_ * kMultiplier + increment_;
  const std::uint64_t folded =
      static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

std::uint32_t Pcg64::next_uint32() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const std::uint64_t value = next_uint64();
  spare_ = static_cast<std::uint32_t>(value >> 32);
  has_spare_ = true;
  return static_cast<std::uint32_t>(value);
}

/// Returns a uniform integer in [0, range] by Lemire's multiplication method.
std::uint32_t Pcg64::bounded(std::uint32_t range) {
  const std::uint32_t exclusive = range + 1;
  std::uint64_t product = std::uint64_t{next_uint32()} * exclusive;
  if (static_cast<std::uint32_t>(product) < exclusive) {
    const std::uint32_t threshold = (std::numeric_limits<std::uint32_t>::max() - range) % exclusive;
    while (static_cast<std::uint32_t>(product) < threshold)
      product = std::uint64_t{next_uint32()} * exclusive;
  }
  return static_cast<std::uint32_t>(product >> 32);
}

std::vector<std::int32_t> Pcg64::integers(std::int32_t low, std::int32_t high, std::size_t count) {
  std::vector<std::int32_t> values(count, low);
  // Unsigned, because ranges from 2³¹ on do not fit int32.
  const auto first = static_cast<std::uint32_t>(low);
  const std::uint32_t range = static_cast<std::uint32_t>(high) - 1 - first;
  if (range == 0) return values;  // numpy draws nothing either
  for (std::int32_t& value : values) value = static_cast<std::int32_t>(first + bounded(range));
  return values;
}

std::vector<std::int64_t> torch_randperm(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  Mt19937 engine(static_cast<std::uint32_t>(seed));
  const bool wide =
      static_cast<std::uint64_t>(count) >= std::numeric_limits<std::uint32_t>::max() / 20;
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    std::uint64_t draw = engine();
    if (wide) draw = draw << 32 | engine();
    std::swap(order[i],
              order[i + static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(count - i))]);
  }
  return order;
}

}  // namespace megatron
