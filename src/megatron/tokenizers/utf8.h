// UTF-8 decoding as in Python with errors='replace', and iteration over valid UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/words.h"  // append_utf8()

namespace megatron {

/// Replaces every maximal invalid part by U+FFFD, as Python's bytes.decode('utf-8',
/// errors='replace') does. Returns nullopt when `text` is valid, so that the common case needs no
/// copy.
std::optional<std::string> replace_invalid_utf8(std::string_view text);

/// Returns whether the byte continues a character.
inline bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Returns the start of valid UTF-8, at most `bytes` long and cut between characters.
inline std::string_view utf8_prefix(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && is_continuation_byte(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

/// Returns the code point at `position` of valid UTF-8 and advances `position` past it.
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

/// Returns the code point that ends before `end` (> 0) in valid UTF-8 and moves `end` to its first
/// byte.
inline char32_t previous_code_point(std::string_view text, std::size_t& end) {
  do --end;
  while (is_continuation_byte(text[end]));
  std::size_t position = end;
  return next_code_point(text, position);
}

/// Returns the number of characters of valid UTF-8.
std::size_t count_characters(std::string_view text);
/// Returns the first `count` characters of valid UTF-8.
std::string_view first_characters(std::string_view text, std::size_t count);
/// Returns where each character of valid UTF-8 begins, and the size of the text.
std::vector<std::size_t> character_starts(std::string_view text);

}  // namespace megatron
