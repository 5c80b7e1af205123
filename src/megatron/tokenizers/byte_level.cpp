#include "megatron/tokenizers/byte_level.h"

#include <array>
#include <cstdint>

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::size_t kCharacters = 0x144;  // the alphabet ends at U+0143

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  std::array<std::uint16_t, 256> character{};
  std::array<std::int16_t, kCharacters> byte{};
  constexpr Alphabet() {
    byte.fill(-1);
    std::uint16_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? static_cast<std::uint16_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

void append_byte_level(std::string& out, std::string_view text) {
  const std::size_t start = out.size();
  out.resize(start + 2 * text.size());
  char* p = out.data() + start;
  for (const char c : text) {
    const unsigned character = kAlphabet.character[static_cast<unsigned char>(c)];
    if (character < 0x80) {
      *p++ = static_cast<char>(character);
    } else {
      *p++ = static_cast<char>(0xC0 | character >> 6);
      *p++ = static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  out.resize(static_cast<std::size_t>(p - out.data()));
}

void append_decoded_byte_level(std::string& out, std::string_view token) {
  const std::size_t start = out.size();
  for (std::size_t i = 0; i < token.size();) {
    const char32_t c = next_code_point(token, i);
    if (c >= kCharacters || kAlphabet.byte[c] < 0) {
      out.resize(start);
      out.append(token);
      return;
    }
    out.push_back(static_cast<char>(kAlphabet.byte[c]));
  }
}

}  // namespace megatron
