// Where the bytes of a text that was rewritten come from, as the `tokenizers` package records it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {

/// A character of a rewritten text, and how it changes the number of characters: 0 for one that
/// takes the place of one, 1 for one that is new, −n for one that takes the places of n others
/// besides.
struct CharacterChange {
  char32_t character;
  int change;
};
using CharacterChanges = std::vector<CharacterChange>;

/// A text, and for each of its bytes the place of a character in the original text.
struct AlignedText {
  std::string text;
  std::vector<Span> places;

  AlignedText() = default;
  /// The text as it is.
  explicit AlignedText(std::string_view original);

  /// Rewrites the text. A new character has the place of the byte before it: of the last character
  /// whose place was taken.
  void rewrite(const CharacterChanges& changes);
  /// Replaces each match by `content`, which has the place of the match's last character.
  void replace(std::span<const Span> matches, std::string_view content);
  /// Puts `prefix` before a text that is not empty. It has the place of the first character.
  void prepend(std::string_view prefix);
  /// Removes the characters for which `keeps` returns false.
  template <class Keeps>
  void keep_characters(Keeps keeps) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t begin = i;
      if (!keeps(next_code_point(text, i))) continue;
      for (std::size_t from = begin; from < i; ++from, ++size) {
        text[size] = text[from];
        places[size] = places[from];
      }
    }
    text.resize(size);
    places.resize(size);
  }
  /// Removes all bytes but those from `begin` to `end`.
  void cut(std::size_t begin, std::size_t end);

  /// Returns the place of a range of bytes that is not empty.
  Span place_of(std::size_t begin, std::size_t end) const {
    return {places[begin].begin, places[end - 1].end};
  }
};

}  // namespace megatron::hugging_face
