#include "megatron/datasets/random_state.h"

#include <limits>
#include <numeric>

namespace megatron {
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
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
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
