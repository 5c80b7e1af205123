// A trie over characters, for texts in which most of them take several bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/piece_trie.h"

namespace megatron {

/// Gives the characters of pieces codes from 1 on, those of the first pieces first, and finds
/// pieces in texts of such codes: one step for each character, in memory that lies together for
/// those that are frequent. Immutable and thread-safe once it is finished.
class CharacterTrie {
 public:
  /// Adds a non-empty piece of valid UTF-8; a later one with the same text replaces the id.
  void add(std::string_view piece, std::int32_t id);
  /// Makes room for so many pieces of a common length.
  void reserve(std::size_t count) {
    constexpr std::size_t kCommonLength = 8;
    pieces_.reserve(count);
    text_.reserve(count * kCommonLength);
  }
  /// Builds the trie. Call it once, before any search.
  void finish();

  /// Returns the code of a character; 0: it is in no piece.
  char32_t code(char32_t c) const { return blocks_[block_of_[c / kBlock]][c % kBlock]; }
  /// Returns the characters of the longest piece.
  std::size_t longest() const { return longest_; }

  /// Calls found(length, id) for every piece that the characters with these codes begin with, the
  /// shortest first. Lengths are in characters.
  template <class Found>
  void for_each_prefix(std::u32string_view codes, Found found) const {
    trie_.for_each_prefix(codes, found);
  }

 private:
  static constexpr std::size_t kBlock = 256, kMostCharacters = 0x110000;
  struct Piece {
    std::size_t end;  ///< in text_
    std::int32_t id;
  };

  std::array<std::uint16_t, kMostCharacters / kBlock> block_of_{};
  std::vector<std::array<char32_t, kBlock>> blocks_{{}};  ///< the first has no characters
  char32_t num_codes_ = 1;
  std::size_t longest_ = 0;
  HugePageVector<char32_t> text_;  ///< the pieces, until finish()
  HugePageVector<Piece> pieces_;
  Trie<char32_t> trie_;
};

}  // namespace megatron
