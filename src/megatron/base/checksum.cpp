#include "megatron/base/checksum.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <array>

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0x82F63B78u : 0u);
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t checksum(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::array<std::uint64_t, 2> checksum_128(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

std::string checksum_hex(std::uint64_t value) {
  return format("%016llx", static_cast<unsigned long long>(value));
}

std::string hex_text(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

std::string md5_hex(std::string_view text) {
  std::array<unsigned char, 16> digest;
  MEGATRON_CHECK(
      EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_md5(), nullptr) == 1,
      "libcrypto refuses MD5, as in its FIPS mode");
  return hex_text({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t remainder = ~0u;
  for (const char c : bytes)
    remainder = (remainder >> 8) ^ kTable[(remainder ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~remainder;
}

}  // namespace megatron
