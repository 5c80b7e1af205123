#include "megatron/base/crc32c.h"

#include <array>

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

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t remainder = ~0u;
  for (const char c : bytes)
    remainder = (remainder >> 8) ^ kTable[(remainder ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~remainder;
}

}  // namespace megatron
