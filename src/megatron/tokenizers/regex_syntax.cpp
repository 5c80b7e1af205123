#include "megatron/tokenizers/regex_syntax.h"

#include <cctype>

namespace megatron {
namespace {

/// The members of Oniguruma's \w, for use inside a class.
constexpr std::string_view kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}\\x{"
    "1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-"
    "\\x{1f189}";

/// The members of Rust's \w.
constexpr std::string_view kRustWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";

class Translator {
 public:
  Translator(std::string_view pattern, RegexDialect dialect)
      : in_(pattern), is_ruby_(dialect == RegexDialect::oniguruma) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '(' && is_ruby_) {
        group();
      } else if (c == '{' && is_ruby_) {
        interval();
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  void copy(std::size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }
  char peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void put(std::string_view text, std::size_t consumed) {
    out_.append(text);
    at_ += consumed;
  }

  void escape() {
    const char c = peek(1);
    const std::string word(is_ruby_ ? kWord : kRustWord);
    if (c == 'w') return put(in_class_ ? word : "[" + word + "]", 2);
    if (c == 'W' && !in_class_) return put("[^" + word + "]", 2);
    if (c == 'W') throw std::string("\\W inside [...] is not supported");
    if (c == 'h') return put(in_class_ ? "0-9a-fA-F" : "[0-9a-fA-F]", 2);
    if (c == 'H' && !in_class_) return put("[^0-9a-fA-F]", 2);
    if (c == 'u' && is_ruby_)
      return put("\\x{" + std::string(in_.substr(at_ + 2, 4)) + "}",
                 6 < in_.size() - at_ ? 6 : in_.size() - at_);
    if ((c == 'p' || c == 'P') && peek(2) == '{') return property();
    copy(2);
  }

  /// Adds the prefix sc: to script names: PCRE2 reads a bare name as Script_Extensions, the
  /// dialects as Script.
  void property() {
    const std::size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) throw std::string("\\p{ without }");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    std::string prefix(in_.substr(at_, 3));
    if (name.starts_with('^')) {
      prefix += '^';
      name.remove_prefix(1);
    }
    const bool is_category = name.size() <= 2 || name == "Any" || name == "Alphabetic" ||
                             name == "White_Space" || name == "Emoji";
    out_ += prefix + (is_category ? "" : "sc:") + std::string(name) + "}";
    at_ = close + 1;
  }

  void open_class() {
    in_class_ = true;
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') put("\\]", 1);
  }

  void class_character(char c) {
    if (c == '&' && peek(1) == '&')
      throw std::string("the intersection && inside [...] is not supported");
    if (c == '[') {
      const std::size_t close = in_.find(":]", at_);
      if (peek(1) != ':' || close == std::string_view::npos)
        throw std::string("a class nested inside [...] is not supported");
      return copy(close + 2 - at_);
    }
    if (c == ']') in_class_ = false;
    copy(1);
  }

  /// Translates Ruby's option m, "dot matches newline", which is s in PCRE2.
  void group() {
    copy(1);
    if (peek(0) != '?') return;
    copy(1);
    while (std::isalpha(static_cast<unsigned char>(peek(0))) != 0 || peek(0) == '-') {
      if (peek(0) == 'm') {
        put("s", 1);
      } else {
        copy(1);
      }
    }
  }

  /// Translates X{1,n}+, which repeats the interval in Ruby and equals X+. In Ruby only a lone +
  /// makes a quantifier possessive.
  void interval() {
    const std::size_t close = in_.find('}', at_);
    if (close == std::string_view::npos || close + 1 >= in_.size() || in_[close + 1] != '+')
      return copy(1);
    const std::string_view body = in_.substr(at_ + 1, close - at_ - 1);
    if (body != "1" && !body.starts_with("1,"))
      throw std::string("an interval {n,m} followed by + is not supported");
    put("+", close + 2 - at_);
  }

  std::string_view in_;
  bool is_ruby_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string translate_regex(std::string_view pattern, RegexDialect dialect) {
  return Translator(pattern, dialect).run();
}

}  // namespace megatron
