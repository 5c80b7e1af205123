#include "megatron/tokenizers/character_trie.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

void CharacterTrie::add(std::string_view piece, std::int32_t id) {
  const std::size_t begin = text_.size();
  for (std::size_t at = 0; at < piece.size();) {
    const char32_t c = next_code_point(piece, at);
    MEGATRON_CHECK(c < kMostCharacters, "piece ", id, " is not UTF-8 before byte ", at);
    std::uint16_t& block = block_of_[c / kBlock];
    if (block == 0) {
      block = static_cast<std::uint16_t>(blocks_.size());
      blocks_.push_back({});
    }
    char32_t& code = blocks_[block][c % kBlock];
    if (code == 0) code = num_codes_++;
    text_.push_back(code);
  }
  longest_ = std::max(longest_, text_.size() - begin);
  pieces_.push_back({text_.size(), id});
}

void CharacterTrie::finish() {
  trie_.reserve(pieces_.size());
  const std::u32string_view text(text_.data(), text_.size());
  std::size_t begin = 0;
  for (const Piece& piece : pieces_) {
    trie_.add(text.substr(begin, piece.end - begin), piece.id);
    begin = piece.end;
  }
  trie_.finish(num_codes_);
  text_ = {};
  pieces_ = {};
}

}  // namespace megatron
