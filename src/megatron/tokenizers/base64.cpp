#include "megatron/tokenizers/base64.h"

#include <array>
#include <cstdint>

namespace megatron {
namespace {

constexpr std::uint8_t kInvalid = 0xFF;

constexpr std::array<std::uint8_t, 256> make_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kInvalid);
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
  return values;
}

constexpr std::array<std::uint8_t, 256> kValues = make_values();

}  // namespace

bool append_base64(std::string& out, std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const bool is_last = i + 4 == text.size();
    std::uint32_t bits = 0;
    std::uint8_t invalid = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const bool is_padding = is_last && j >= 4 - padding;
      const std::uint8_t value = is_padding ? 0 : kValues[static_cast<unsigned char>(text[i + j])];
      invalid |= value;
      bits = bits << 6 | (value & 0x3F);
    }
    if (invalid > 0x3F) return false;
    const std::size_t count = is_last ? 3 - padding : 3;
    for (std::size_t j = 0; j < count; ++j) out += static_cast<char>(bits >> (16 - 8 * j));
  }
  return true;
}

}  // namespace megatron
