// XXH3 (64 bits): the checksum of checkpoint pieces. Fast enough to verify at the speed of the
// disk; `xxhsum -H3` prints the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megatron {

/// XXH3_64bits of the bytes, seed 0.
std::uint64_t checksum(std::span<const std::byte> bytes);
std::uint64_t checksum(std::string_view text);

/// Sixteen lower-case hexadecimal digits.
std::string checksum_hex(std::uint64_t value);

}  // namespace megatron
