// CRC-32C (Castagnoli), the checksum of TensorFlow's record files. RFC 3720, appendix B.4 has the
// test vectors.
#pragma once

#include <cstdint>
#include <string_view>

namespace megatron {

/// Returns the CRC-32C of `bytes` (reflected polynomial 0x82F63B78, initial value and final mask
/// all ones).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace megatron
