#include "megatron/tokenizers/regex_syntax.h"

#include <cctype>

namespace megatron {
namespace {

/// The superscripts and fractions of Latin-1, which Oniguruma's \w matches, but not inside a class.
constexpr std::string_view kWordOutsideOfClasses = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

class Translator {
 public:
  Translator(std::string_view pattern, RegexDialect dialect, const CharactersOf& characters_of)
      : in_(pattern), dialect_(dialect), characters_of_(characters_of) {}

  std::string run() {
    const bool is_ruby = dialect_ == RegexDialect::oniguruma;
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        out_ += translate_class(in_, at_, dialect_, characters_of_);
      } else if (c == '(' && is_ruby) {
        group();
      } else if (c == '{' && is_ruby) {
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

  /// Returns what \w or \h matches outside of classes, as members of one.
  std::string members(char letter) const {
    const bool is_ruby_word = letter == 'w' && dialect_ == RegexDialect::oniguruma;
    return std::string(members_of_escape(letter, dialect_)) +
           (is_ruby_word ? std::string(kWordOutsideOfClasses) : "");
  }

  void escape() {
    const char c = peek(1);
    if (c == 'w' || c == 'h') return put("[" + members(c) + "]", 2);
    if (c == 'W' || c == 'H') return put("[^" + members(c == 'W' ? 'w' : 'h') + "]", 2);
    if (c == 'b' || c == 'B') return boundary(c == 'b');
    if (const auto named = posix_property(in_, at_, dialect_)) {
      const std::string word = named->members == members_of_escape('w', dialect_)
                                   ? members('w')
                                   : std::string(named->members);
      return put((named->is_negated ? "[^" : "[") + word + "]", named->size);
    }
    // Oniguruma's \p is a letter unless a brace follows.
    if (dialect_ == RegexDialect::oniguruma && (c == 'p' || c == 'P') && peek(2) != '{')
      return put(std::string(1, c), 2);
    out_ += translate_escape(in_, at_, dialect_);
  }

  /// Translates \b and \B, whose words consist of what \w matches.
  void boundary(bool is_boundary) {
    const std::string word = "[" + members('w') + "]";
    const std::string_view behind = is_boundary ? "(?!" : "(?=",
                           start = is_boundary ? "(?=" : "(?!";
    out_ += "(?:(?<=" + word + ")";
    out_.append(behind).append(word).append(")|(?<!").append(word).append(")");
    out_.append(start).append(word).append("))");
    at_ += 2;
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
  /// Also makes {,n} into {0,n}.
  void interval() {
    const std::size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) return copy(1);
    const std::string_view body = in_.substr(at_ + 1, close - at_ - 1);
    if (close + 1 >= in_.size() || in_[close + 1] != '+') {
      const bool has_no_minimum = body.size() > 1 && body.front() == ',' &&
                                  body.find_first_not_of("0123456789", 1) == body.npos;
      return has_no_minimum ? put("{0", 1) : copy(1);
    }
    if (body != "1" && !body.starts_with("1,"))
      throw std::string("an interval {n,m} followed by + is not supported");
    put("+", close + 2 - at_);
  }

  std::string_view in_;
  RegexDialect dialect_;
  const CharactersOf& characters_of_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_regex(std::string_view pattern, RegexDialect dialect,
                            const CharactersOf& characters_of) {
  return Translator(pattern, dialect, characters_of).run();
}

}  // namespace megatron
