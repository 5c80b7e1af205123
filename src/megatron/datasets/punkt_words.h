// The words of a text as Punkt sees them, and what can be said of each without its neighbors.
// Classes of characters are those of Python's strings, as in nltk.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/punkt_parameters.h"

namespace megatron::punkt {

/// The type of all numbers.
inline constexpr std::string_view kNumber = "##number##";

enum class FirstCase { none, lower, upper };

struct Word {
  std::string_view text;
  std::string type;  ///< lower case, or kNumber
  bool ends_sentence = false, is_abbreviation = false, is_ellipsis = false;

  bool has_final_period() const { return text.ends_with('.'); }
  bool is_number() const { return type.starts_with(kNumber); }
  /// Returns the type without a final period.
  std::string type_without_period() const;
  /// Returns the type without a period that ends a sentence.
  std::string type_without_sentence_period() const {
    return ends_sentence ? type_without_period() : type;
  }
  FirstCase first_case() const;
  bool is_initial() const;  ///< one letter and a period
};

/// Divides a text, valid UTF-8, into words and punctuation. Periods stay with their words.
std::vector<Word> words_of(std::string_view text);

/// Marks sentence ends, abbreviations and ellipses by the word alone.
void annotate(Word& word, const PunktParameters& parameters);

/// Returns the size of the character at `at` if no word contains it; 0 otherwise.
std::size_t non_word_size(std::string_view text, std::size_t at);
/// Returns the size of the white space at `at`; 0 without.
std::size_t space_size(std::string_view text, std::size_t at);

}  // namespace megatron::punkt
