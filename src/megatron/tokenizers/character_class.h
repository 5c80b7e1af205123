// Classes of characters that the patterns of byte-level BPE distinguish, by Unicode 16.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "megatron/tokenizers/utf8.h"

namespace megatron {

/// Bits, so that a class of a pattern is a mask.
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

}  // namespace megatron
