#include "megatron/datasets/punkt_splitter.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

using chat::TextClass;

/// The type of all numbers.
constexpr std::string_view kNumber = "##number##";

/// Returns the size of the white space at `at`; 0 without.
std::size_t space_size(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  std::size_t end = at;
  return chat::is_space(next_code_point(text, end)) ? end - at : 0;
}

/// Returns the size of the character at `at` if no word contains it; 0 otherwise.
std::size_t non_word_size(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  std::size_t end = at;
  const char32_t c = next_code_point(text, end);
  constexpr std::u32string_view kNonWord = U")\";}]*:@'({[‘’“”«»?!";
  return kNonWord.find(c) != std::u32string_view::npos ? end - at : 0;
}

std::size_t character_size(std::string_view text, std::size_t at) {
  std::size_t end = at;
  next_code_point(text, end);
  return end - at;
}

/// Returns whether the character is a letter or an underscore, as Python's [^\W\d].
bool is_letter(std::string_view character) {
  return character == "_" || (chat::is_class(character, TextClass::alnum) &&
                              !chat::is_class(character, TextClass::decimal));
}

std::size_t run_of(std::string_view text, std::size_t at, char c) {
  const std::size_t end = text.find_first_not_of(c, at);
  return std::min(end, text.size()) - at;
}

/// Returns the size of dashes, an ellipsis or periods with spaces between them; 0 without.
std::size_t multiple_punctuation_size(std::string_view text, std::size_t at) {
  if (at >= text.size() || (text[at] != '-' && text[at] != '.')) return 0;
  const std::size_t run = run_of(text, at, text[at]);
  if (run >= 2) return run;
  if (text[at] == '-') return 0;
  // At least two pairs of a period and a space, then a period.
  std::size_t end = at, last_pair = at, pairs = 0;
  while (end < text.size() && text[end] == '.') {
    const std::size_t space = space_size(text, end + 1);
    if (space == 0) break;
    last_pair = end;
    end += 1 + space;
    ++pairs;
  }
  const bool period_follows = end < text.size() && text[end] == '.';
  if (period_follows && pairs >= 2) return end + 1 - at;
  return !period_follows && pairs >= 3 ? last_pair + 1 - at : 0;
}

/// Returns whether a word that reaches to `at` ends there, if no comma follows.
bool is_end(std::string_view text, std::size_t at) {
  return at >= text.size() || space_size(text, at) > 0 || non_word_size(text, at) > 0 ||
         multiple_punctuation_size(text, at) > 0;
}

/// Returns the size of the word or the punctuation at `at`, where there is no white space.
std::size_t word_size(std::string_view text, std::size_t at) {
  if (const std::size_t size = multiple_punctuation_size(text, at)) return size;
  std::size_t end = at + character_size(text, at);
  constexpr std::string_view kNoWordStart = "(\"`{[:;&#*@)}]-,";
  if (kNoWordStart.find(text[at]) != std::string_view::npos) return end - at;
  while (!is_end(text, end) && !(text[end] == ',' && is_end(text, end + 1)))
    end += character_size(text, end);
  return end - at;
}

/// Returns whether the text is a number with signs, points and commas.
bool is_numeric(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) ++at;
  const auto is_digit = [&] {
    return chat::is_class(text.substr(at, character_size(text, at)), TextClass::decimal);
  };
  if (at >= text.size() || !is_digit()) return false;
  for (; at < text.size(); at += character_size(text, at))
    if (text[at] != ',' && text[at] != '.' && text[at] != '-' && !is_digit()) return false;
  return true;
}

std::string type_of(std::string_view text) {
  std::string lower = chat::lower(text);
  return is_numeric(lower) ? std::string(kNumber) : lower;
}

enum class FirstCase { none, lower, upper };

/// A word of a text as Punkt sees it, and what can be said of it without its neighbors. Classes of
/// characters are those of Python's strings, as in nltk.
struct Word {
  std::string_view text;
  std::string type;  ///< lower case, or kNumber
  bool ends_sentence = false, is_abbreviation = false, is_ellipsis = false;

  bool has_final_period() const { return text.ends_with('.'); }
  bool is_number() const { return type.starts_with(kNumber); }
  /// Returns the type without a final period.
  std::string type_without_period() const {
    return count_characters(type) > 1 && type.ends_with('.') ? type.substr(0, type.size() - 1)
                                                             : type;
  }
  /// Returns the type without a period that ends a sentence.
  std::string type_without_sentence_period() const {
    return ends_sentence ? type_without_period() : type;
  }
  FirstCase first_case() const {
    const std::string_view first = text.substr(0, character_size(text, 0));
    if (chat::is_class(first, TextClass::lower)) return FirstCase::lower;
    return chat::is_class(first, TextClass::upper) ? FirstCase::upper : FirstCase::none;
  }
  /// Returns whether the word is one letter and a period.
  bool is_initial() const {
    const std::size_t first = character_size(text, 0);
    return text.size() == first + 1 && text.back() == '.' && is_letter(text.substr(0, first));
  }
};

/// Divides a text, valid UTF-8, into words and punctuation. Periods stay with their words.
std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    for (std::size_t at = 0; at < line.size();) {
      if (const std::size_t space = space_size(line, at)) {
        at += space;
        continue;
      }
      const std::string_view word = line.substr(at, word_size(line, at));
      words.push_back({.text = word, .type = type_of(word)});
      at += word.size();
    }
  }
  return words;
}

/// Marks sentence ends, abbreviations and ellipses by the word alone.
void annotate(Word& word, const PunktParameters& parameters) {
  const std::string_view text = word.text;
  if (text == "." || text == "?" || text == "!") {
    word.ends_sentence = true;
  } else if (text.size() > 1 && run_of(text, 0, '.') == text.size()) {
    word.is_ellipsis = true;
  } else if (word.has_final_period() && !text.ends_with("..")) {
    const std::string lower = chat::lower(text.substr(0, text.size() - 1));
    const auto is_known = [&](const std::string& type) {
      return parameters.abbreviations.contains(type);
    };
    word.is_abbreviation = is_known(lower) || is_known(lower.substr(lower.rfind('-') + 1));
    word.ends_sentence = !word.is_abbreviation;
  }
}

constexpr std::size_t kNone = std::string_view::npos;

bool is_final(char c) { return c == '.' || c == '?' || c == '!'; }

std::size_t end_of_spaces(std::string_view text, std::size_t at) {
  while (const std::size_t space = space_size(text, at)) at += space;
  return at;
}

std::size_t end_of_word(std::string_view text, std::size_t at) {
  while (at < text.size() && space_size(text, at) == 0) next_code_point(text, at);
  return at;
}

/// Returns whether a word begins a sentence by what was seen of it; nullopt: unknown.
std::optional<bool> begins_sentence(const Word& word, const PunktParameters& parameters) {
  static constexpr std::string_view kPunctuation = ";:,.!?";
  if (word.text.size() == 1 && kPunctuation.find(word.text[0]) != kNone) return false;
  const int seen = parameters.context(word.type_without_sentence_period());
  const FirstCase first = word.first_case();
  if (first == FirstCase::upper && (seen & kLower) != 0 && (seen & kUpperWithin) == 0) return true;
  if (first == FirstCase::lower && ((seen & kUpper) != 0 || (seen & kLowerAtStart) == 0))
    return false;
  return std::nullopt;
}

/// Corrects the marks of a word that ends in a period by the word that follows it.
void annotate_pair(Word& word, const Word& next, const PunktParameters& parameters) {
  if (!word.has_final_period()) return;
  const std::string type = word.type_without_period(),
                    next_type = next.type_without_sentence_period();
  const auto abbreviate = [&] {
    word.ends_sentence = false;
    word.is_abbreviation = true;
  };
  if (parameters.collocations.contains(type + "\t" + next_type)) return abbreviate();
  const bool is_initial = word.is_initial();
  if ((word.is_abbreviation || word.is_ellipsis) && !is_initial) {
    const bool starts =
        begins_sentence(next, parameters) == true ||
        (next.first_case() == FirstCase::upper && parameters.sentence_starters.contains(next_type));
    if (starts) {
      word.ends_sentence = true;
      return;
    }
  }
  if (!is_initial && type != kNumber) return;
  const std::optional<bool> starts = begins_sentence(next, parameters);
  if (starts == false) return abbreviate();
  // A name such as "J. Bach": the next word is never seen in lower case.
  if (!starts && is_initial && next.first_case() == FirstCase::upper &&
      (parameters.context(next_type) & kLower) == 0)
    abbreviate();
}

/// Returns the size of the closing quotes and brackets at the begin of a text that belong to the
/// sentence before; 0 if what follows them does not end it.
std::size_t closing_size(std::string_view text) {
  static constexpr std::u32string_view kClosing = U"\"')]}‘’“”«»";
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size(); end = at)
    if (kClosing.find(next_code_point(text, at)) == std::u32string_view::npos) break;
  const bool ends =
      end == text.size() || space_size(text, end) > 0 || text.substr(end).starts_with("--");
  return ends ? end : 0;
}

}  // namespace

PunktSplitter::PunktSplitter(PunktParameters parameters, bool keep_newlines)
    : parameters_(std::move(parameters)), keep_newlines_(keep_newlines) {}

/// Finds the first candidate at or behind `from`: without keep_newlines one final character,
/// otherwise the longest run of characters up to one, and the white space behind it.
bool PunktSplitter::find(std::string_view text, std::size_t from, Candidate& candidate) const {
  for (std::size_t at = from; at < text.size();) {
    std::size_t found = kNone, begin = at;
    if (keep_newlines_) {
      begin = end_of_spaces(text, at);
      at = end_of_word(text, begin);
      // The last final character of the run behind which something follows.
      for (std::size_t i = at; i > begin && found == kNone; --i)
        if (is_final(text[i - 1]) && end_of_spaces(text, i) < text.size()) found = i - 1;
    } else {
      begin = text.find_first_of(".?!", at);
      if (begin == kNone) return false;
      at = begin + 1;
      if (end_of_spaces(text, at) < text.size() &&
          (non_word_size(text, at) > 0 || space_size(text, at) > 0))
        found = begin;
    }
    if (found == kNone) continue;
    candidate.match = begin;
    const std::size_t next = end_of_spaces(text, found + 1);
    candidate.end = keep_newlines_ ? next : found + 1;
    const std::size_t non_word = non_word_size(text, candidate.end);
    candidate.next = non_word > 0 ? candidate.end : next;
    candidate.after = non_word > 0 ? candidate.end + non_word : end_of_word(text, next);
    return true;
  }
  return false;
}

/// Finds the places where a sentence may end, and keeps only the last one of each word.
std::vector<PunktSplitter::Candidate> PunktSplitter::candidates(std::string_view text) const {
  std::vector<Candidate> kept;
  std::optional<Candidate> previous;
  Candidate found;
  for (std::size_t from = 0; find(text, from, found); from = found.end) {
    const std::size_t behind = previous ? previous->match : 0;
    const std::string_view between = text.substr(behind, found.match - behind);
    const std::size_t space = between.find_last_of(" \t\n\r\v\f");
    found.begin =
        space != kNone && space > 0 ? behind + space + 1 : (previous ? previous->begin : 0);
    if (previous && previous->match <= found.begin) kept.push_back(*previous);
    previous = found;
  }
  if (previous) kept.push_back(*previous);
  return kept;
}

/// Returns whether a sentence ends in the context, before its last word.
bool PunktSplitter::contains_end(std::string_view context) const {
  std::vector<Word> words = words_of(context);
  for (Word& word : words) annotate(word, parameters_);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    annotate_pair(words[i], words[i + 1], parameters_);
    if (words[i].ends_sentence) return true;
  }
  return false;
}

void PunktSplitter::split_piece(std::string_view text,
                                std::vector<std::string_view>& sentences) const {
  std::vector<Range> ranges;
  std::size_t begin = 0;
  for (const Candidate& candidate : candidates(text)) {
    if (!contains_end(text.substr(candidate.begin, candidate.after - candidate.begin))) continue;
    ranges.push_back({begin, candidate.end});
    begin = candidate.next;
  }
  ranges.push_back({begin, chat::strip(text, chat::Side::right).size()});

  std::size_t moved = 0;  // bytes at the begin of a range that the sentence before it took
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    Range range{ranges[i].begin + moved, ranges[i].end};
    moved = 0;
    if (i + 1 < ranges.size()) {
      const Range& next = ranges[i + 1];
      const std::string_view rest =
          next.begin < next.end ? text.substr(next.begin, next.end - next.begin) : "";
      if (const std::size_t closing = closing_size(rest)) {
        range.end = next.begin + closing;
        moved = end_of_spaces(rest, closing);
      }
    }
    if (range.begin < range.end)
      sentences.push_back(text.substr(range.begin, range.end - range.begin));
  }
}

std::vector<std::string_view> PunktSplitter::split(std::string_view text) const {
  constexpr std::size_t kPieceCharacters = 1000000;
  std::vector<std::string_view> sentences;
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, chat::byte_of_character(text, kPieceCharacters));
    split_piece(piece, sentences);
    text.remove_prefix(piece.size());
  }
  return sentences;
}

}  // namespace megatron
