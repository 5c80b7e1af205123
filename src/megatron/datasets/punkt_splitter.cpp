#include "megatron/datasets/punkt_splitter.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "megatron/datasets/punkt_words.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

using punkt::FirstCase;
using punkt::Word;

constexpr std::size_t kNone = std::string_view::npos;

bool is_final(char c) { return c == '.' || c == '?' || c == '!'; }

std::size_t end_of_spaces(std::string_view text, std::size_t at) {
  while (const std::size_t space = punkt::space_size(text, at)) at += space;
  return at;
}

std::size_t end_of_word(std::string_view text, std::size_t at) {
  while (at < text.size() && punkt::space_size(text, at) == 0) next_code_point(text, at);
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
  if (!is_initial && type != punkt::kNumber) return;
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
      end == text.size() || punkt::space_size(text, end) > 0 || text.substr(end).starts_with("--");
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
          (punkt::non_word_size(text, at) > 0 || punkt::space_size(text, at) > 0))
        found = begin;
    }
    if (found == kNone) continue;
    candidate.match = begin;
    const std::size_t next = end_of_spaces(text, found + 1);
    candidate.end = keep_newlines_ ? next : found + 1;
    const std::size_t non_word = punkt::non_word_size(text, candidate.end);
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
  std::vector<Word> words = punkt::words_of(context);
  for (Word& word : words) punkt::annotate(word, parameters_);
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
