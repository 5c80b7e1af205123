#include "megatron/datasets/cleaning/text_measures.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "megatron/base/checksum.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::string_view kEllipsis = "\xe2\x80\xa6", kBullet = "\xe2\x80\xa2";
constexpr std::array<std::string_view, 8> kStopWords = {"the", "be",   "to",   "of",
                                                        "and", "that", "have", "with"};

/// White space of Python's str.split().
bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return is_white_space(c);
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return count;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

TextMeasures::TextMeasures(std::string_view text) : text_(text) {
  measure_characters();
  measure_lines();
}

void TextMeasures::measure_characters() {
  std::size_t begin = 0, characters = 0;
  bool has_letter = false, is_real = false;
  for (std::size_t at = 0; at < text_.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text_, at);
    ++characters_;
    if (is_space(c)) {
      add_word(begin, start, characters, has_letter, is_real);
      begin = at;
      characters = 0;
      has_letter = is_real = false;
      continue;
    }
    ++characters;
    const bool letter = is_letter(c), digit = !letter && is_numeric(c);
    has_letter |= letter;
    digits_ += digit;
    symbols_ += !letter && !digit && !is_combining_mark(c);
    is_real |= letter || digit || !is_punctuation(c);
  }
  add_word(begin, text_.size(), characters, has_letter, is_real);
}

void TextMeasures::add_word(std::size_t begin, std::size_t end, std::size_t characters, bool alpha,
                            bool real) {
  if (characters == 0) return;
  const std::string_view word = text_.substr(begin, end - begin);
  words_.push_back({word, characters, checksum(word)});
  alpha_words_ += alpha;
  real_words_ += real;
  if (real) real_word_characters_ += characters;
}

void TextMeasures::measure_lines() {
  for (const std::string_view line : chat::split_lines(text_, /*keep_ends=*/false)) {
    ++lines_;
    const std::string_view content = chat::strip(line, chat::Side::both);
    bullet_lines_ += content.starts_with('-') || content.starts_with(kBullet);
    ellipsis_lines_ += content.ends_with("...") || content.ends_with(kEllipsis);
  }
}

double TextMeasures::per_character(double count) const { return ratio(count, characters()); }
double TextMeasures::digit_ratio() const { return per_character(static_cast<double>(digits_)); }
double TextMeasures::symbol_ratio() const { return per_character(static_cast<double>(symbols_)); }

double TextMeasures::mean_word_length() const {
  return ratio(static_cast<double>(real_word_characters_), words());
}

double TextMeasures::symbol_word_ratio() const {
  const auto hashes = std::ranges::count(text_, '#');
  const std::size_t ellipses = count_of(text_, "...") + count_of(text_, kEllipsis);
  return ratio(static_cast<double>(std::max(static_cast<std::size_t>(hashes), ellipses)),
               static_cast<double>(words_.size()));
}

double TextMeasures::bullet_line_ratio() const {
  return ratio(static_cast<double>(bullet_lines_), static_cast<double>(lines_));
}

double TextMeasures::ellipsis_line_ratio() const {
  return ratio(static_cast<double>(ellipsis_lines_), static_cast<double>(lines_));
}

double TextMeasures::alpha_word_ratio() const {
  return ratio(static_cast<double>(alpha_words_), static_cast<double>(words_.size()));
}

double TextMeasures::stop_words() const {
  const auto occurs = [&](std::string_view word) {
    return std::ranges::find(words_, word, &Word::text) != words_.end();
  };
  return static_cast<double>(std::ranges::count_if(kStopWords, occurs));
}

/// Divides `text` at runs of at least so many line ends, and counts the parts that occurred before.
TextMeasures::DuplicateShare TextMeasures::duplicates(std::string_view text,
                                                      std::size_t least_line_ends) const {
  std::unordered_set<std::string_view> seen;
  std::size_t parts = 0, duplicates = 0, characters = 0, begin = 0;
  const auto add = [&](std::size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    ++parts;
    if (seen.insert(part).second) return;
    ++duplicates;
    characters += count_characters(part);
  };
  for (std::size_t at = text.find('\n'); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_not_of('\n', at), text.size());
    if (end - at >= least_line_ends) {
      add(at);
      begin = end;
    }
    at = text.find('\n', end);
  }
  add(text.size());
  return {.elements = ratio(static_cast<double>(duplicates), static_cast<double>(parts)),
          .characters = per_character(static_cast<double>(characters)),
          .is_known = true};
}

const TextMeasures::DuplicateShare& TextMeasures::lines() const {
  if (!line_share_.is_known) line_share_ = duplicates(text_, 1);
  return line_share_;
}

const TextMeasures::DuplicateShare& TextMeasures::paragraphs() const {
  if (!paragraph_share_.is_known)
    paragraph_share_ = duplicates(chat::strip(text_, chat::Side::both), 2);
  return paragraph_share_;
}

std::size_t TextMeasures::word_characters(std::size_t first, std::size_t count) const {
  std::size_t characters = 0;
  for (const Word& word : std::span(words_).subspan(first, count)) characters += word.characters;
  return characters;
}

std::vector<std::uint64_t> TextMeasures::ngram_hashes(std::size_t size) const {
  std::vector<std::uint64_t> words, hashes;
  for (const Word& word : words_) words.push_back(word.hash);
  for (std::size_t i = 0; i + size <= words.size(); ++i)
    hashes.push_back(checksum(std::as_bytes(std::span(words).subspan(i, size))));
  return hashes;
}

double TextMeasures::top_ngram_ratio(std::size_t size) const {
  struct Occurrences {
    std::size_t first, count;
  };
  std::unordered_map<std::uint64_t, Occurrences> seen;
  Occurrences top{.first = 0, .count = 0};
  const std::vector<std::uint64_t> hashes = ngram_hashes(size);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto found = seen.try_emplace(hashes[i], Occurrences{.first = i, .count = 0}).first;
    ++found->second.count;
  }
  for (const auto& [hash, occurrences] : seen) {
    if (occurrences.count > top.count ||
        (occurrences.count == top.count && occurrences.first < top.first))
      top = occurrences;
  }
  if (top.count == 0) return 0;
  const std::size_t characters = word_characters(top.first, size) + size - 1;
  return per_character(static_cast<double>(characters * top.count));
}

double TextMeasures::duplicate_ngram_ratio(std::size_t size) const {
  std::unordered_set<std::uint64_t> seen;
  std::size_t characters = 0;
  const std::vector<std::uint64_t> hashes = ngram_hashes(size);
  for (std::size_t i = 0; i < hashes.size();) {
    if (seen.insert(hashes[i]).second) {
      ++i;
    } else {
      characters += word_characters(i, size);
      i += size;
    }
  }
  return per_character(static_cast<double>(characters));
}

}  // namespace megatron
