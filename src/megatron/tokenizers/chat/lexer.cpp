#include "megatron/tokenizers/chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "megatron/tokenizers/chat/python_text.h"
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

/// Returns the text of a string literal: \n, \x41, \u00e9 and the other escapes of Python are
/// replaced, and unknown ones stay. Throws a TemplateError with `line` for a broken one.
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

/// Returns the template with \n for all ends of lines, and without the last of them.
std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// The signs, longest first.
constexpr std::array<std::string_view, 25> kSigns = {
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data();
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError(message, line_); }
  bool starts_with(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  /// Moves past `count` bytes and counts their lines.
  void advance(std::size_t count) {
    const std::string_view passed = text_.substr(at_, count);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    at_ += count;
  }
  void add(TokenKind kind, std::string text = "") {
    tokens_.push_back({kind, std::move(text), line_});
  }

  /// Reads the text before the next tag, and then the tag.
  void read_data() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
        add(TokenKind::data, std::string(text_.substr(begin)));
        return advance(text_.size() - begin);
      }
      const char second = text_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    const std::string_view data = trim_before_tag(text_.substr(begin, tag - begin), kind, sign);
    if (!data.empty()) add(TokenKind::data, std::string(data));
    advance(tag - begin + 2);
    if (sign == '-' || sign == '+') advance(1);
    if (kind == '#') return skip_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin);
    read_tag(kind == '%' ? '%' : '}');
  }

  /// Removes the white space that "-" and lstrip_blocks take before a tag.
  std::string_view trim_before_tag(std::string_view data, char kind, char sign) const {
    if (sign == '-') return strip(data, Side::right);
    if (sign == '+' || kind == '{') return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !at_line_begin_) return data;
    return strip(data.substr(line_begin), Side::both).empty() ? data.substr(0, line_begin) : data;
  }

  /// Moves past the end of a block or comment, which begins with "-", "+" or the end itself, and
  /// past the white space that belongs to it.
  bool skip_end(std::string_view end) {
    const bool strips = starts_with("-"), keeps = starts_with("+");
    const std::size_t size = (strips || keeps ? 1 : 0) + end.size();
    if (!text_.substr(at_ + size - end.size()).starts_with(end)) return false;
    if (keeps && end == "}}") return false;
    const std::size_t begin = at_;
    advance(size);
    if (strips) {
      skip_space();
    } else if (!keeps && end != "}}" && starts_with("\n")) {
      advance(1);
    }
    at_line_begin_ = text_.substr(begin, at_ - begin).ends_with('\n');
    return true;
  }

  void skip_comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) fail("a comment does not end");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    advance(end - at_ - (sign == '-' || sign == '+' ? 1 : 0));
    skip_end("#}");
  }

  void skip_space() {
    const std::string_view rest = text_.substr(at_);
    advance(rest.size() - strip(rest, Side::left).size());
  }

  bool skip_word(std::string_view word) {
    skip_space();
    if (!starts_with(word)) return false;
    if (at_ + word.size() < text_.size() && is_name_byte(text_[at_ + word.size()])) return false;
    advance(word.size());
    skip_space();
    return true;
  }

  /// Reads a raw block whole when the tag begins one.
  bool read_raw() {
    const std::size_t begin = at_;
    const int line = line_;
    if (!skip_word("raw") || !(starts_with("%}") || starts_with("-%}"))) {
      at_ = begin;
      line_ = line;
      return false;
    }
    skip_end_of_raw_tag();
    const std::size_t body = at_;
    for (std::size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 2)) {
      advance(tag - at_);
      const int tag_line = line_;
      advance(2);
      const char sign = at_ < text_.size() ? text_[at_] : '\0';
      if (sign == '-' || sign == '+') advance(1);
      if (skip_word("endraw") && skip_end("%}")) {
        const std::string_view data = trim_before_tag(text_.substr(body, tag - body), '%', sign);
        if (!data.empty()) tokens_.push_back({TokenKind::data, std::string(data), line});
        return true;
      }
      at_ = tag;
      line_ = tag_line;
    }
    fail("a raw block does not end");
  }

  /// Unlike other tags, raw does not take the end of the line after it.
  void skip_end_of_raw_tag() {
    const bool strips = starts_with("-");
    advance(strips ? 3 : 2);
    if (strips) skip_space();
    at_line_begin_ = text_.substr(0, at_).ends_with('\n');
  }

  /// Reads the tokens of a tag. `closer` is '%' or '}'.
  void read_tag(char closer) {
    const std::string_view end = closer == '%' ? "%}" : "}}";
    std::string open;  // the brackets that are open
    for (;;) {
      skip_space();
      if (at_ == text_.size()) fail("a tag does not end");
      if (open.empty() && at_tag_end(end)) {
        add(closer == '%' ? TokenKind::block_end : TokenKind::variable_end);
        skip_end(end);
        return;
      }
      read_token(open);
    }
  }

  bool at_tag_end(std::string_view end) const {
    return starts_with(end) || starts_with("-" + std::string(end)) ||
           (end == "%}" && starts_with("+%}"));
  }

  void read_token(std::string& open) {
    const char c = text_[at_];
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string(c);
    if (is_name_byte(c)) {
      std::size_t end = at_;
      while (end < text_.size() && is_name_byte(text_[end])) ++end;
      add(TokenKind::name, std::string(text_.substr(at_, end - at_)));
      return advance(end - at_);
    }
    for (const std::string_view sign : kSigns) {
      if (!starts_with(sign)) continue;
      balance(sign, open);
      add(TokenKind::sign, std::string(sign));
      return advance(sign.size());
    }
    std::size_t end = at_;
    next_code_point(text_, end);
    fail("unexpected character " + text_repr(text_.substr(at_, end - at_)));
  }

  void balance(std::string_view sign, std::string& open) const {
    if (sign == "(" || sign == "[" || sign == "{") {
      open += sign == "(" ? ')' : sign == "[" ? ']' : '}';
    } else if (sign == ")" || sign == "]" || sign == "}") {
      if (open.empty()) fail("unexpected '" + std::string(sign) + "'");
      if (open.back() != sign[0])
        fail("unexpected '" + std::string(sign) + "', expected '" + open.back() + "'");
      open.pop_back();
    }
  }

  /// Returns the end of digits with single underscores between them.
  std::size_t digits_end(std::size_t at) const {
    while (at < text_.size() &&
           (is_digit(text_[at]) ||
            (text_[at] == '_' && at + 1 < text_.size() && is_digit(text_[at + 1]))))
      ++at;
    return at;
  }

  void read_number() {
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    std::size_t end = prefixed_number_end();
    bool is_real = false;
    if (end == 0) {
      end = digits_end(at_);
      const auto digit_at = [&](std::size_t at) {
        return at < text_.size() && is_digit(text_[at]);
      };
      if (!after_dot && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
        end = digits_end(end + 1);
        is_real = true;
      }
      if (!after_dot && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        const std::size_t exponent =
            end +
            (end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 2 : 1);
        if (digit_at(exponent)) {
          end = digits_end(exponent);
          is_real = true;
        }
      }
    }
    if (!is_real && text_[at_] == '0' && end == digits_end(at_))  // 012 is a 0 and a 12
      end = std::min(text_.find_first_not_of("0_", at_), end);
    std::string digits(text_.substr(at_, end - at_));
    std::erase(digits, '_');
    add(is_real ? TokenKind::real : TokenKind::integer, std::move(digits));
    advance(end - at_);
  }

  /// Returns the end of a number such as 0x1F; 0 for other numbers.
  std::size_t prefixed_number_end() const {
    if (text_[at_] != '0' || at_ + 2 >= text_.size()) return 0;
    const char letter = static_cast<char>(text_[at_ + 1] | 0x20);
    if (letter != 'x' && letter != 'o' && letter != 'b') return 0;
    const std::string_view digits = letter == 'x'   ? "0123456789abcdefABCDEF_"
                                    : letter == 'o' ? "01234567_"
                                                    : "01_";
    const std::size_t end = std::min(text_.find_first_not_of(digits, at_ + 2), text_.size());
    return end > at_ + 2 ? end : 0;
  }

  void read_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("a string does not end");
    add(TokenKind::string, unescape_string(text_.substr(at_ + 1, end - at_ - 1), line_));
    advance(end + 1 - at_);
  }

  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_begin_ = true;  ///< whether the last tag took the end of its line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) { return Lexer(source).run(); }

}  // namespace megatron::chat
