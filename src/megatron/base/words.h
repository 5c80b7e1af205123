// Divides text into words and numbers, and joins them.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace megatron {

/// Returns the parts of the text between white space.
inline std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Returns the text without white space around it.
inline std::string trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(kSpaces);
  return first == std::string_view::npos
             ? ""
             : std::string(text.substr(first, text.find_last_not_of(kSpaces) + 1 - first));
}

/// Returns the text with its ASCII letters in lower case.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

/// Returns the parts of the text between separators, without white space around them. "" has none.
inline std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(trim(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

/// The text of an integer or of a text. Other numbers need a format of their own.
struct ValueText {
  template <class Value>
  std::string operator()(const Value& value) const {
    static_assert(!std::is_floating_point_v<Value>);
    if constexpr (std::is_arithmetic_v<Value>)
      return std::to_string(value);
    else
      return std::string(value);
  }
};

/// Returns the texts of the values with the separator between them. `text_of` is a function or a
/// member.
template <class Values, class TextOf = ValueText>
std::string joined_text(const Values& values, std::string_view separator = ", ",
                        TextOf text_of = {}) {
  std::string text;
  std::size_t index = 0;
  for (const auto& value : values) {
    if (index++ > 0) text += separator;
    text += std::invoke(text_of, value);
  }
  return text;
}

/// Returns the text with other texts in place of some of its characters.
inline std::string escaped_text(std::string_view text,
                                std::initializer_list<std::pair<char, std::string_view>> escapes) {
  std::string out;
  for (const char c : text) {
    const auto* const found =
        std::ranges::find(escapes, c, &std::pair<char, std::string_view>::first);
    if (found == escapes.end())
      out += c;
    else
      out += found->second;
  }
  return out;
}

/// Appends a code point as UTF-8.
inline void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  const int num_rest = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  put((0xFF00U >> (num_rest + 1) & 0xFF) | c >> 6 * num_rest);
  for (int i = num_rest; i-- > 0;) put(0x80 | (c >> 6 * i & 0x3F));
}

/// Returns the number that is the whole text; nullopt for any other text, and for a number that is
/// out of range.
template <class Number>
std::optional<Number> exact_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

/// Returns the number that at most six digits write; nullopt for any other text.
inline std::optional<std::int64_t> small_number(const std::string& text) {
  const bool is_number =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::optional<std::int64_t>(std::stoll(text)) : std::nullopt;
}

}  // namespace megatron
