// Checksums: XXH3 of checkpoint data, which is fast enough to verify at the speed of the disk
// (`xxhsum -H3` prints the same value), and those that foreign formats ask for.
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

/// Returns the bytes as lower-case hexadecimal digits.
std::string hex_text(std::string_view bytes);

/// Returns the MD5 digest of `text` (RFC 1321) as 32 lower-case hexadecimal digits. It names the
/// files of the index cache as Megatron Core does. Not for security.
std::string md5_hex(std::string_view text);

/// Returns the CRC-32C (Castagnoli) of `bytes` (reflected polynomial 0x82F63B78, initial value and
/// final mask all ones), the checksum of TensorFlow's record files. RFC 3720, appendix B.4 has the
/// test vectors.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace megatron
