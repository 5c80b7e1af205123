// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), a
// counter-based generator. A random number depends only on its coordinates: key = mix(seed, hash of
// the site's name), counter = (element / 4, ordinal), lane = element mod 4.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace megatron {

/// Applies the ten rounds of Philox to a 128-bit counter with a 64-bit key.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::uint64_t key64) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key64),
                k1 = static_cast<std::uint32_t>(key64 >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// Returns the random numbers of elements 4·block … 4·block + 3 at `ordinal`.
constexpr std::array<std::uint32_t, 4> philox_block(std::uint64_t key, std::uint64_t block,
                                                    std::uint64_t ordinal) {
  return philox4x32(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
       static_cast<std::uint32_t>(ordinal), static_cast<std::uint32_t>(ordinal >> 32)},
      key);
}

/// Returns the 64-bit FNV-1a hash of a site's name.
constexpr std::uint64_t fnv1a_64(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// Returns the key of a random site: the finalizer of splitmix64 applied to the seed and the hash
/// of the name.
constexpr std::uint64_t philox_key(std::uint64_t seed, std::string_view site) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15u ^ fnv1a_64(site);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace megatron
