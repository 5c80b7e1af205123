// UTF-8 as Python reads it: decoding with errors='replace', and walking over text that is known to
// be valid.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// `text` with every maximal invalid part replaced by U+FFFD, as Python's bytes.decode('utf-8',
/// errors='replace') does; nothing when `text` is valid already (the common case costs no copy).
std::optional<std::string> replace_invalid_utf8(std::string_view text);

/// The code point at `position` of valid UTF-8, which moves past it.
inline char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return position += 1, lead;
  if (lead < 0xE0) {
    const char32_t c = (lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    return position += 2, c;
  }
  if (lead < 0xF0) {
    const char32_t c = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    return position += 3, c;
  }
  const char32_t c =
      (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
  return position += 4, c;
}

/// The code point that ends just before `end` (> 0) of valid UTF-8; `end` moves to its first byte.
inline char32_t previous_code_point(std::string_view text, std::size_t& end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  std::size_t position = end;
  return next_code_point(text, position);
}

/// Appends `c` as UTF-8.
void append_utf8(std::string& out, char32_t c);

}  // namespace megatron
