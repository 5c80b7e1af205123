#include "megatron/tokenizers/chat/string_literal.h"

#include <charconv>

#include "megatron/tokenizers/chat/template_error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

/// Returns the number that begins at `at`, of at most `most` digits, and moves past it.
char32_t read_digits(std::string_view text, std::size_t& at, std::size_t most, int base,
                     std::size_t least, int line) {
  std::uint32_t value = 0;
  const std::string_view digits = text.substr(at, most);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  const auto count = static_cast<std::size_t>(end - digits.data());
  if (error != std::errc() || count < least)
    throw TemplateError("a string has a broken escape", line);
  at += count;
  return value;
}

/// Returns the character of a one-letter escape; '\0' for other letters.
char plain_escape(char c) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kCharacters = "\a\b\f\n\r\t\v\\'\"";
  const std::size_t place = kLetters.find(c);
  return place == std::string_view::npos ? '\0' : kCharacters[place];
}

void append_character(std::string& out, char32_t c, int line) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
    throw TemplateError("a string has an escape that is no character", line);
  append_utf8(out, c);
}

}  // namespace

std::string unescape_string(std::string_view literal, int line) {
  std::string out;
  for (std::size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      out += literal[at++];
      continue;
    }
    const char c = literal[at + 1];
    at += 2;
    if (const char plain = plain_escape(c)) {
      out += plain;
    } else if (c == '\n') {  // the string goes on in the next line
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_character(out, read_digits(literal, at, count, 16, count, line), line);
    } else if (c >= '0' && c <= '7') {
      --at;
      append_character(out, read_digits(literal, at, 3, 8, 1, line), line);
    } else if (c == 'N') {
      throw TemplateError("a string names a character with \\N, which is not supported", line);
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace megatron::chat
