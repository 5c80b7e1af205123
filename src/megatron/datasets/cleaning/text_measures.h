// Measures one text for the rules by which documents are filtered: lengths, kinds of characters,
// lines and repetitions. The definitions are those of Gopher (Rae et al., 2021, table A1) as
// datatrove computes them; words are separated by white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron {

/// A text of valid UTF-8, which must outlive this object. Ratios of an empty text are 0. Not
/// thread-safe: repetitions are computed when they are first asked for.
class TextMeasures {
 public:
  explicit TextMeasures(std::string_view text);

  std::string_view text() const { return text_; }
  double bytes() const { return static_cast<double>(text_.size()); }
  double characters() const { return static_cast<double>(characters_); }
  /// Words that contain something other than punctuation.
  double words() const { return static_cast<double>(real_words_); }
  double mean_word_length() const;   ///< characters per word of words()
  double digit_ratio() const;        ///< decimal digits (Nd and other numbers) per character
  double symbol_ratio() const;       ///< characters that are no letter, mark, number or white space
  double symbol_word_ratio() const;  ///< the more frequent of '#' and ellipses, per word
  double bullet_line_ratio() const;
  double ellipsis_line_ratio() const;
  double alpha_word_ratio() const;  ///< share of words with a letter
  double stop_words() const;        ///< how many of Gopher's eight English stop words occur

  double duplicate_line_ratio() const { return lines().elements; }
  double duplicate_line_character_ratio() const { return lines().characters; }
  double duplicate_paragraph_ratio() const { return paragraphs().elements; }
  double duplicate_paragraph_character_ratio() const { return paragraphs().characters; }
  /// Share of the characters in the most frequent sequence of `size` words.
  double top_ngram_ratio(std::size_t size) const;
  /// Share of the characters in sequences of `size` words that occurred before.
  double duplicate_ngram_ratio(std::size_t size) const;

 private:
  struct Word {
    std::string_view text;
    std::size_t characters;
    std::uint64_t hash;
  };
  struct DuplicateShare {
    double elements = 0, characters = 0;
    bool is_known = false;
  };
  void measure_characters();
  void add_word(std::size_t begin, std::size_t end, std::size_t characters, bool alpha, bool real);
  void measure_lines();
  const DuplicateShare& lines() const;
  const DuplicateShare& paragraphs() const;
  DuplicateShare duplicates(std::string_view text, std::size_t least_line_ends) const;
  double per_character(double count) const;
  std::vector<std::uint64_t> ngram_hashes(std::size_t size) const;
  std::size_t word_characters(std::size_t first, std::size_t count) const;

  std::string_view text_;
  std::vector<Word> words_;
  std::size_t characters_ = 0, digits_ = 0, symbols_ = 0;
  std::size_t real_words_ = 0, real_word_characters_ = 0, alpha_words_ = 0;
  std::size_t lines_ = 0, bullet_lines_ = 0, ellipsis_lines_ = 0;
  mutable DuplicateShare line_share_, paragraph_share_;
};

}  // namespace megatron
