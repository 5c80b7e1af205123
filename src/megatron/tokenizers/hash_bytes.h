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

/// Returns an integer that differs for different texts of the same size, which is at most 8.
inline std::uint64_t pack_bytes(const char* at, std::size_t size) {
  if (size >= 4) return load_bytes(at, 4) | load_bytes(at + size - 4, 4) << 32;
  if (size == 0) return 0;
  return static_cast<unsigned char>(at[0]) |
         static_cast<std::uint64_t>(static_cast<unsigned char>(at[size / 2])) << 8 |
         static_cast<std::uint64_t>(static_cast<unsigned char>(at[size - 1])) << 16;
}

/// Returns a hash of short texts for tables in memory; it is not stable between versions.
inline std::uint64_t hash_bytes_64(std::string_view bytes) {
  std::uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8)
    hash = std::rotl((hash ^ load_bytes(at, 8)) * 0xC2B2AE3D27D4EB4Fu, 29);
  return (hash ^ pack_bytes(at, left)) * 0xD6E8FEB86659FD93u;
}

/// Returns the same hash in half as many bits.
inline std::uint32_t hash_bytes(std::string_view bytes) {
  const std::uint64_t hash = hash_bytes_64(bytes);
  return static_cast<std::uint32_t>(hash >> 32) ^ static_cast<std::uint32_t>(hash);
}

/// A text in a table: its bytes if it is short, otherwise their hash. Most tokens are short, so
/// that a table of keys answers without a look at the texts.
struct TextKey {
  std::uint64_t bits = 0;
  std::uint32_t size = 0;

  static TextKey of(std::string_view text) {
    return {text.size() <= 8 ? pack_bytes(text.data(), text.size()) : hash_bytes_64(text),
            static_cast<std::uint32_t>(text.size())};
  }
  bool operator==(const TextKey&) const = default;
  /// Returns whether texts with this key are equal.
  bool is_text() const { return size <= 8; }
  std::size_t hash() const {
    const std::uint64_t mixed = (bits ^ size * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return static_cast<std::size_t>(mixed >> 32 ^ mixed);
  }
};

/// Returns whether two texts of the same size are equal: memcmp() for short ones.
inline bool same_bytes(const char* a, const char* b, std::size_t size) {
  for (; size > 8; a += 8, b += 8, size -= 8)
    if (load_bytes(a, 8) != load_bytes(b, 8)) return false;
  return pack_bytes(a, size) == pack_bytes(b, size);
}

}  // namespace megatron
