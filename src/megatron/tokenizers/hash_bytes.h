// The hash of the tables of tokens.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace megatron {

/// Returns `size` (at most 8) bytes as an integer.
inline std::uint64_t load_bytes(const char* bytes, std::size_t size) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, size);
  return value;
}

/// Returns a hash of short texts for tables in memory; it is not stable between versions.
inline std::uint32_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8)
    hash = std::rotl((hash ^ load_bytes(at, 8)) * 0xC2B2AE3D27D4EB4Fu, 29);
  if (left >= 4) {
    hash ^= load_bytes(at, 4) | load_bytes(at + left - 4, 4) << 32;
  } else if (left > 0) {
    hash ^= static_cast<unsigned char>(at[0]) |
            static_cast<std::uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
            static_cast<std::uint64_t>(static_cast<unsigned char>(at[left - 1])) << 16;
  }
  hash *= 0xD6E8FEB86659FD93u;
  return static_cast<std::uint32_t>(hash >> 32) ^ static_cast<std::uint32_t>(hash);
}

}  // namespace megatron
