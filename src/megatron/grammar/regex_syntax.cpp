#include "megatron/grammar/regex_syntax.h"

#include <optional>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

using StateId = Automaton::StateId;

constexpr std::string_view kClassLetters = "dDwWsS";
constexpr int kMaxGroups = 200, kMaxCount = 100'000;

/// Returns what \d, \w and \s stand for, and the complements of these.
CodePoints class_of(char letter) {
  CodePoints set;
  if (letter == 'd' || letter == 'D' || letter == 'w' || letter == 'W') set.add('0', '9');
  if (letter == 'w' || letter == 'W') {
    set.add('a', 'z');
    set.add('A', 'Z');
    set.add('_', '_');
  }
  if (letter == 's' || letter == 'S') {
    set.add('\t', '\r');
    set.add(' ', ' ');
  }
  return letter < 'a' ? set.complement() : set;
}

CodePoints dot() {
  CodePoints ends;
  for (const char32_t c : {U'\n', U'\r', U'\u2028', U'\u2029'}) ends.add(c, c);
  return ends.complement();
}

/// Adds the texts of a pattern while it reads it. A part that is repeated is read again for each
/// copy.
class RegexReader {
 public:
  RegexReader(Automaton& automaton, std::string_view pattern, const RegexOptions& options)
      : to_(automaton), pattern_(pattern), options_(options) {}

  StateId read(StateId at) {
    if (replace_invalid_utf8(pattern_)) refuse("bytes that are not UTF-8");
    folds_ = eat("(?i)");
    const StateId end = alternatives(at, /*is_whole=*/true);
    if (place_ < pattern_.size()) refuse("a ')' without '('");
    return end;
  }

 private:
  struct Count {
    int least = 0;
    std::optional<int> most = {};
  };

  [[noreturn]] void refuse(const std::string& what) const {
    const bool is_one = what.starts_with("a ") || what.starts_with("an ");
    throw UserError({"the regular expression, position " + std::to_string(place_),
                     what + (is_one ? " is not" : " are not") + " supported", "write it without"});
  }

  bool is_at_end() const { return place_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(place_).starts_with(text); }
  bool eat(std::string_view text) {
    if (!sees(text)) return false;
    place_ += text.size();
    return true;
  }

  StateId anything(StateId at) {
    return to_.add_any_number(at, [this](StateId from) {
      return to_.add_characters(from, CodePoints::all(), options_.form);
    });
  }

  StateId alternatives(StateId at, bool is_whole) {
    const StateId end = to_.add_state();
    do {
      const bool begins = is_whole && eat("^");
      StateId last = is_whole && options_.searches && !begins ? anything(at) : at;
      while (!is_at_end() && !sees("|") && !sees(")") && !sees("$")) last = repeated(last);
      if (sees("$")) {
        const std::string_view rest = pattern_.substr(place_ + 1);
        if (!is_whole || !(rest.empty() || rest.front() == '|'))
          refuse("an anchor '$' that is not at the end");
        ++place_;
      } else if (is_whole && options_.searches) {
        last = anything(last);
      }
      to_.add_skip(last, end);
    } while (eat("|"));
    return end;
  }

  /// Adds an atom with its quantifier.
  StateId repeated(StateId at) {
    const std::size_t begin_of_atom = place_;
    const auto copy = [this] {
      const StateId begin = to_.add_state();
      return std::pair(begin, atom(begin));
    };
    auto [begin, end] = copy();
    const std::optional<Count> count = quantifier();
    if (!count) {
      to_.add_skip(at, begin);
      return end;
    }
    const std::size_t behind = place_;
    bool has_copy = true;  // which is in no place yet
    const auto next_copy = [&] {
      if (!std::exchange(has_copy, false)) {
        place_ = begin_of_atom;
        std::tie(begin, end) = copy();
      }
    };
    for (int i = 0; i < count->least; ++i) {
      next_copy();
      to_.add_skip(at, begin);
      at = end;
    }
    const StateId out = to_.add_state();
    to_.add_skip(at, out);
    if (!count->most) {
      if (count->least == 0) next_copy();
      to_.add_skip(out, begin);
      to_.add_skip(end, out);
    } else {
      for (int i = count->least; i < *count->most; ++i) {
        next_copy();
        to_.add_skip(at, begin);
        to_.add_skip(at = end, out);
      }
    }
    place_ = behind;
    return out;
  }

  std::optional<Count> quantifier() {
    std::optional<Count> count;
    if (eat("*"))
      count = Count{};
    else if (eat("+"))
      count = Count{.least = 1};
    else if (eat("?"))
      count = Count{.most = 1};
    else
      count = interval();
    if (count && !eat("?") && sees("+")) refuse("a possessive quantifier");
    if (count && (sees("*") || sees("?") || sees("+"))) refuse("a quantifier of a quantifier");
    return count;
  }

  /// Reads {n}, {n,} or {n,m}. Other braces stand for themselves.
  std::optional<Count> interval() {
    const std::size_t begin = place_;
    if (!eat("{")) return std::nullopt;
    const std::optional<int> least = number();
    Count count{.least = least.value_or(0), .most = least};
    if (eat(",")) count.most = number();
    if (!eat("}") || (!least && !count.most)) {
      place_ = begin;
      return std::nullopt;
    }
    if (count.most && *count.most < count.least) refuse("an interval that ends before it begins");
    return count;
  }

  std::optional<int> number() {
    std::optional<int> value;
    for (; !is_at_end() && pattern_[place_] >= '0' && pattern_[place_] <= '9'; ++place_) {
      value = value.value_or(0) * 10 + (pattern_[place_] - '0');
      if (*value > kMaxCount) refuse("a count of more than " + std::to_string(kMaxCount));
    }
    return value;
  }

  StateId atom(StateId at) {
    if (sees("*") || sees("+") || sees("?")) refuse("a quantifier with nothing before it");
    if (sees("^")) refuse("an anchor '^' that is not at the beginning");
    if (sees("(")) return group(at);
    if (eat(".")) return characters(at, dot());
    if (sees("[")) return characters(at, bracket());
    CodePoints set;
    if (const std::optional<CodePoints> named = escaped_class()) {
      set = *named;
    } else {
      const char32_t c = character();
      set.add(c, c);
    }
    if (folds_) set.fold_case();
    return characters(at, set);
  }

  StateId characters(StateId at, const CodePoints& set) {
    return to_.add_characters(at, set, options_.form);
  }

  StateId group(StateId at) {
    for (const auto& [prefix, name] :
         {std::pair<std::string_view, std::string_view>{"(?=", "a look-ahead"},
          {"(?!", "a look-ahead"},
          {"(?<=", "a look-behind"},
          {"(?<!", "a look-behind"},
          {"(?P=", "a back reference"},
          {"(?P>", "a recursive pattern"},
          {"(?R", "a recursive pattern"},
          {"(?>", "an atomic group"},
          {"(?(", "a condition"},
          {"(?#", "a comment"}})
      if (sees(prefix)) refuse(std::string(name));
    if (eat("(?<") || eat("(?P<"))
      place_ = std::min(pattern_.find('>', place_), pattern_.size() - 1) + 1;
    else if (!eat("(?:")) {
      if (sees("(?")) refuse("a group with flags");
      eat("(");
    }
    if (++depth_ > kMaxGroups) refuse("a group in more than 200 others");
    const StateId end = alternatives(at, /*is_whole=*/false);
    --depth_;
    if (!eat(")")) refuse("a '(' without ')'");
    return end;
  }

  /// Reads an escape such as \d if it is the next.
  std::optional<CodePoints> escaped_class() {
    if (!sees("\\") || place_ + 1 >= pattern_.size()) return std::nullopt;
    const char letter = pattern_[place_ + 1];
    if (kClassLetters.find(letter) == std::string_view::npos) return std::nullopt;
    place_ += 2;
    return class_of(letter);
  }

  CodePoints bracket() {
    const std::size_t begin = place_;
    eat("[");
    const bool is_negated = eat("^");
    CodePoints set;
    for (bool is_first = true; is_first || !sees("]"); is_first = false) {
      if (is_at_end()) {
        place_ = begin;
        refuse("a '[' without ']'");
      }
      if (sees("[:") || sees("[=") || sees("[.")) refuse("a POSIX class");
      if (const std::optional<CodePoints> named = escaped_class()) {
        set.add(*named);
        continue;
      }
      const char32_t first = character(/*is_in_class=*/true);
      const std::string_view rest = pattern_.substr(place_);
      if (rest.size() < 2 || rest.front() != '-' || rest[1] == ']') {
        set.add(first, first);
        continue;
      }
      ++place_;
      if (escaped_class()) refuse("a range that ends with a class");
      const char32_t last = character(/*is_in_class=*/true);
      if (last < first) refuse("a range that ends before it begins");
      set.add(first, last);
    }
    eat("]");
    if (folds_) set.fold_case();
    return is_negated ? set.complement() : set;
  }

  /// Reads a character or its escape.
  char32_t character(bool is_in_class = false) {
    if (!eat("\\")) return next_code_point(pattern_, place_);
    if (is_at_end()) refuse("a '\\' at the end");
    const char letter = pattern_[place_];
    constexpr std::string_view kControls = "t\tn\nr\rf\fv\va\ae\x1b";
    for (std::size_t i = 0; i < kControls.size(); i += 2)
      if (letter == kControls[i]) return ++place_, static_cast<char32_t>(kControls[i + 1]);
    if (letter == 'b' && is_in_class) return ++place_, U'\b';
    if (letter == 'x') return ++place_, hexadecimal(2);
    if (letter == 'u') return ++place_, hexadecimal(4);
    if (letter == 'b' || letter == 'B') refuse("a word boundary");
    if (letter == 'p' || letter == 'P') refuse("a Unicode property");
    if (letter == 'A' || letter == 'Z' || letter == 'z' || letter == 'G')
      refuse("an anchor \\" + std::string(1, letter));
    if ((letter >= '1' && letter <= '9') || letter == 'k' || letter == 'g')
      refuse("a back reference");
    const bool is_word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                         (letter >= 'A' && letter <= 'Z');
    if (is_word) refuse("an escape \\" + std::string(1, letter));
    return next_code_point(pattern_, place_);
  }

  /// Reads a character's number in `size` digits, or in braces.
  char32_t hexadecimal(int size) {
    const bool has_braces = eat("{");
    char32_t value = 0;
    int count = 0;
    for (; !is_at_end() && count < (has_braces ? 6 : size); ++place_, ++count) {
      const std::string_view digits = "0123456789abcdefABCDEF";
      const std::size_t digit = digits.find(pattern_[place_]);
      if (digit == std::string_view::npos) break;
      value = value * 16 + static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    }
    const bool is_whole = has_braces ? count > 0 && eat("}") : count == size;
    if (!is_whole || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      refuse("an escape that is no character");
    return value;
  }

  Automaton& to_;
  std::string_view pattern_;
  RegexOptions options_;
  std::size_t place_ = 0;
  int depth_ = 0;
  bool folds_ = false;
};

}  // namespace

Automaton::StateId add_regex(Automaton& automaton, Automaton::StateId at, std::string_view pattern,
                             const RegexOptions& options) {
  return RegexReader(automaton, pattern, options).read(at);
}

}  // namespace megatron
