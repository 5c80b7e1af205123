// XXH3 (64 bits), the checksum of checkpoint data. It is fast enough to verify at the speed of the
// disk. `xxhsum -H3` prints the same value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megatron {

/// Returns XXH3_64bits of the bytes with seed 0.
std::uint64_t checksum(std::span<const std::byte> bytes);
std::uint64_t checksum(std::string_view text);

/// Returns XXH3_128bits of the text with seed 0: its low half, then its high half.
std::array<std::uint64_t, 2> checksum_128(std::string_view text);

/// Returns `value` as sixteen lower-case hexadecimal digits.
std::string checksum_hex(std::uint64_t value);

}  // namespace megatron
