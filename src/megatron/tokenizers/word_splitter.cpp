#include "megatron/tokenizers/word_splitter.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "megatron/tokenizers/patterns.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/unicode_tables.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Classes of characters that the patterns distinguish, by Unicode 16. They are bits, so that a
/// class of a pattern is a mask.
enum CharacterClass : std::uint8_t {
  kUpperLetter = 1,    ///< \p{Lu} and \p{Lt}
  kLowerLetter = 2,    ///< \p{Ll}
  kUncasedLetter = 4,  ///< \p{Lm} and \p{Lo}
  kMark = 8,           ///< \p{M}
  kNumber = 16,        ///< \p{N}
  kSpace = 32,         ///< \s
  kNewline = 64,       ///< \r and \n, which are kSpace too
  kOther = 128,        ///< punctuation, symbols, controls and unassigned characters
};

/// The class of every character.
class CharacterClasses {
 public:
  /// Returns the table, which the first call fills.
  static const CharacterClasses& instance();

  std::uint8_t of(char32_t c) const { return classes_[c]; }
  /// Returns the class of the character at `position` of valid UTF-8 and advances past it.
  std::uint8_t next(std::string_view text, std::size_t& position) const {
    const auto byte = static_cast<unsigned char>(text[position]);
    if (byte < 0x80) return ++position, classes_[byte];
    return classes_[next_code_point(text, position)];
  }

 private:
  CharacterClasses();
  std::array<std::uint8_t, 0x110000> classes_;
};

std::uint8_t class_of_category(std::string_view category) {
  switch (category[0]) {
    case 'L':
      return category[1] == 'l'                         ? kLowerLetter
             : category[1] == 'u' || category[1] == 't' ? kUpperLetter
                                                        : kUncasedLetter;
    case 'M':
      return kMark;
    case 'N':
      return kNumber;
    default:
      return kOther;
  }
}

CharacterClasses::CharacterClasses() {
  const auto fill = [this](char32_t first, char32_t last, std::uint8_t value) {
    std::fill(classes_.begin() + first, classes_.begin() + last + 1, value);
  };
  classes_.fill(kOther);
  const auto classify = [this](char32_t first, char32_t last) {
    for (char32_t c = first; c <= last; ++c)
      classes_[c] = class_of_category(utf8proc_category_string(static_cast<utf8proc_int32_t>(c)));
  };
  // Blocks of one class are filled at once, because the first use of a tokenizer waits for this.
  classify(0, 0x33FF);
  fill(0x3400, 0x4DBF, kUncasedLetter);
  classify(0x4DC0, 0x4DFF);
  fill(0x4E00, 0x9FFF, kUncasedLetter);
  classify(0xA000, 0xABFF);
  fill(0xAC00, 0xD7A3, kUncasedLetter);
  classify(0xD7A4, 0xD7FF);
  classify(0xF900, 0x1FFFF);
  classify(0x20000, 0x323FF);
  classify(0xE0000, 0xE01FF);
  for (const auto& range : unicode_tables::assigned_since_14())
    fill(range.first, range.last, class_of_category(range.category));
  for (char32_t c = 0; c <= 0x3000; ++c)
    if (is_white_space(c)) classes_[c] = kSpace;
  classes_['\r'] = classes_['\n'] = kSpace | kNewline;
}

const CharacterClasses& CharacterClasses::instance() {
  static const std::unique_ptr<const CharacterClasses> classes(new CharacterClasses);
  return *classes;
}

constexpr std::uint8_t kLetter = kUpperLetter | kLowerLetter | kUncasedLetter;
constexpr std::uint8_t kSymbol = kMark | kOther;  // [^\s\p{L}\p{N}]
constexpr std::uint8_t kHead = kUpperLetter | kUncasedLetter | kMark;
constexpr std::uint8_t kTail = kLowerLetter | kUncasedLetter | kMark;

enum class Words : std::uint8_t {
  after_space,   ///< " ?\p{L}+"
  after_symbol,  ///< "[^\r\n\p{L}\p{N}]?\p{L}+"
  by_case        ///< words of one capitalization (o200k_base)
};
enum class Contractions : std::uint8_t { none, lowercase, any_case, suffix };

/// The differences between the patterns.
struct Rules {
  Words words;
  Contractions contractions;
  std::size_t most_digits;  ///< of one word; 0: all, after a space
  bool newlines_after_symbols = true;
  bool slashes_after_symbols = false;
  bool newlines_end_spaces = true;  ///< "\s*[\r\n]+"
  bool last_spaces_whole = false;   ///< "\s++$" before the rule above
};

/// Returns the bytes of a contraction ('s, 't, 're, 've, 'm, 'll, 'd) at `at`; 0 when there is
/// none. Without regard to case, the long s (U+017F) is an s too.
std::size_t contraction(std::string_view text, std::size_t at, bool any_case) {
  if (at + 1 >= text.size() || text[at] != '\'') return 0;
  const auto letter = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  return any_case && text.substr(at + 1).starts_with("\u017f") ? 3 : 0;
}

template <Rules kRules>
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), classes_(CharacterClasses::instance()) {}

  /// Returns the end of the word that begins at `at`.
  std::size_t word_end(std::size_t at) const {
    if constexpr (kRules.contractions == Contractions::lowercase ||
                  kRules.contractions == Contractions::any_case) {
      if (const std::size_t size =
              contraction(text_, at, kRules.contractions == Contractions::any_case))
        return at + size;
    }
    std::size_t after = at;
    const std::uint8_t first = classes_.next(text_, after);
    if (const std::size_t end = letters_end(at, first, after)) return end;
    if ((first & kNumber) != 0) return digits_end(after);
    if constexpr (kRules.most_digits == 0)
      if (text_[at] == ' ' && is(kNumber, after)) return digits_end(after);
    if ((first & kSymbol) != 0) return symbols_end(after);
    if (text_[at] == ' ' && is(kSymbol, after)) return symbols_end(after);
    return spaces_end(at);
  }

 private:
  bool is(std::uint8_t mask, std::size_t at) const {
    return at < text_.size() && (classes_.next(text_, at) & mask) != 0;
  }
  /// Returns the end of the longest run of `mask` that begins at `at`.
  std::size_t run_end(std::uint8_t mask, std::size_t at) const {
    while (at < text_.size()) {
      std::size_t next = at;
      if ((classes_.next(text_, next) & mask) == 0) break;
      at = next;
    }
    return at;
  }

  /// Returns the end of a word of letters; 0 when none begins here. `after` is behind the first
  /// character.
  std::size_t letters_end(std::size_t at, std::uint8_t first, std::size_t after) const {
    if constexpr (kRules.words == Words::by_case) {
      const bool has_prefix = (first & (kLetter | kNumber | kNewline)) == 0;
      std::size_t end = has_prefix ? capitalized_end(after) : capitalized_end(at);
      if (end == 0 && has_prefix && (first & kMark) != 0) end = capitalized_end(at);
      if (end == 0) {
        end = has_prefix ? run_end(kHead, after) : run_end(kHead, at);
        if (end == (has_prefix ? after : at)) return 0;
      }
      if constexpr (kRules.contractions == Contractions::suffix)
        end += contraction(text_, end, true);
      return end;
    } else {
      if ((first & kLetter) != 0) return run_end(kLetter, after);
      const bool may_precede = kRules.words == Words::after_space
                                   ? text_[at] == ' '
                                   : (first & (kNumber | kNewline)) == 0;
      return may_precede && is(kLetter, after) ? run_end(kLetter, after) : 0;
    }
  }

  /// Returns the end of [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at `at`; 0 when
  /// it does not match. When no tail follows the longest head, the head gives back its last
  /// characters.
  std::size_t capitalized_end(std::size_t at) const {
    std::size_t tail_end = 0;
    while (at < text_.size()) {
      std::size_t next = at;
      const std::uint8_t kind = classes_.next(text_, next);
      if ((kind & kHead) == 0) {
        if ((kind & kTail) != 0) return run_end(kTail, next);
        break;
      }
      if ((kind & kTail) != 0) tail_end = next;
      at = next;
    }
    return tail_end;
  }

  std::size_t digits_end(std::size_t after) const {
    if constexpr (kRules.most_digits == 0) return run_end(kNumber, after);
    for (std::size_t count = 1; count < kRules.most_digits && is(kNumber, after); ++count)
      classes_.next(text_, after);
    return after;
  }

  std::size_t symbols_end(std::size_t at) const {
    at = run_end(kSymbol, at);
    const auto may_follow = [](char c) {
      return c == '\r' || c == '\n' || (kRules.slashes_after_symbols && c == '/');
    };
    if constexpr (kRules.newlines_after_symbols)
      while (at < text_.size() && may_follow(text_[at])) ++at;
    return at;
  }

  std::size_t spaces_end(std::size_t at) const {
    std::size_t end = at, last = at, newline_end = 0;
    while (end < text_.size()) {
      std::size_t next = end;
      const std::uint8_t kind = classes_.next(text_, next);
      if ((kind & kSpace) == 0) break;
      if ((kind & kNewline) != 0) newline_end = next;
      last = end;
      end = next;
    }
    if (kRules.last_spaces_whole && end == text_.size()) return end;
    if (kRules.newlines_end_spaces && newline_end != 0) return newline_end;
    return end == text_.size() || last == at ? end : last;
  }

  std::string_view text_;
  const CharacterClasses& classes_;
};

constexpr std::size_t kBatch = 256;

template <Rules kRules>
void scan(std::string_view text, const WordSplitter::Sink& sink) {
  const Scanner<kRules> scanner(text);
  std::array<Span, kBatch> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t count = 0;
    while (count < kBatch && at < text.size()) {
      const std::size_t end = scanner.word_end(at);
      words[count++] = {at, end};
      at = end;
    }
    sink(std::span<const Span>(words.data(), count));
  }
}

constexpr Rules kGpt2{.words = Words::after_space,
                      .contractions = Contractions::lowercase,
                      .most_digits = 0,
                      .newlines_after_symbols = false,
                      .newlines_end_spaces = false};
constexpr Rules kLlama3{
    .words = Words::after_symbol, .contractions = Contractions::any_case, .most_digits = 3};
constexpr Rules kQwen{
    .words = Words::after_symbol, .contractions = Contractions::any_case, .most_digits = 1};
constexpr Rules kMegatronV1{
    .words = Words::after_symbol, .contractions = Contractions::none, .most_digits = 1};
constexpr Rules kCl100k{.words = Words::after_symbol,
                        .contractions = Contractions::any_case,
                        .most_digits = 3,
                        .last_spaces_whole = true};
constexpr Rules kO200k{.words = Words::by_case,
                       .contractions = Contractions::suffix,
                       .most_digits = 3,
                       .slashes_after_symbols = true};
constexpr Rules kTekken{.words = Words::by_case,
                        .contractions = Contractions::none,
                        .most_digits = 1,
                        .slashes_after_symbols = true};

}  // namespace

WordSplitter::Scan WordSplitter::find_scan(std::string_view pattern, RegexDialect dialect) {
  struct Known {
    std::string_view pattern;
    Scan scan;
  };
  static constexpr Known kKnown[] = {
      {patterns::kGpt2, scan<kGpt2>},
      {patterns::kR50kBase, scan<kGpt2>},
      {patterns::kCl100kBase, scan<kCl100k>},
      {patterns::kCl100kInJson, scan<kLlama3>},
      {patterns::kLlama3, scan<kLlama3>},
      {patterns::kQwen, scan<kQwen>},
      {patterns::kMegatronV1, scan<kMegatronV1>},
      {patterns::kO200kBase, scan<kO200k>},
      {patterns::kTekken, scan<kTekken>},
  };
  // In Ruby's dialect $ matches before every newline, and {1,3}+ is not possessive.
  const bool differs = dialect == RegexDialect::oniguruma &&
                       (pattern == patterns::kR50kBase || pattern == patterns::kCl100kBase);
  for (const Known& known : kKnown)
    if (known.pattern == pattern && !differs) return known.scan;
  return nullptr;
}

WordSplitter::WordSplitter(const std::string& pattern, RegexDialect dialect,
                           const std::string& source)
    : scan_(find_scan(pattern, dialect)) {
  if (scan_ == nullptr) regex_.emplace(pattern, source, dialect);
}

void WordSplitter::split(std::string_view text, const Sink& sink) const {
  if (scan_ != nullptr) return scan_(text, sink);
  std::string storage;
  std::vector<Span> words;
  Regex::Finder(*regex_).find_all(replace_unassigned_characters(text, storage), 0, words);
  sink(words);
}

}  // namespace megatron
