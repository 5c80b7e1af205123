// The pieces of a SentencePiece model and the ways to find them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/byte_pair_ranks.h"
#include "megatron/tokenizers/hugging_face/token_trie.h"
#include "megatron/tokenizers/sentencepiece/model_file.h"

namespace megatron::sentencepiece {

/// A part of the normalized text with its id.
struct EncodedPiece {
  std::string_view text;
  std::int32_t id;
};

/// Immutable and thread-safe.
class Pieces {
 public:
  explicit Pieces(const ModelFile& model);

  /// Returns the id of a piece that text can be segmented into; −1 when there is none.
  std::int32_t find(std::string_view text) const { return segmentable_.find(text); }
  /// Returns the id of any piece; unk_id() when there is none.
  std::int32_t id_of(std::string_view text) const;
  std::int32_t unk_id() const { return unk_id_; }
  std::int32_t id_of_byte(unsigned char byte) const { return id_of_byte_[byte]; }

  float score(std::int32_t id) const { return scores_[static_cast<std::size_t>(id)]; }
  PieceType type(std::int32_t id) const { return types_[static_cast<std::size_t>(id)]; }
  /// Returns whether text can be segmented into this piece.
  bool is_segmentable(std::int32_t id) const {
    return type(id) == PieceType::normal || type(id) == PieceType::user_defined || is_unused(id);
  }
  bool is_unused(std::int32_t id) const { return type(id) == PieceType::unused; }
  std::int32_t size() const { return static_cast<std::int32_t>(types_.size()); }

  /// The user-defined pieces, which are never split.
  const hugging_face::TokenTrie& symbols() const { return symbols_; }
  /// Returns the length of the user-defined piece that `text` begins with; otherwise that of its
  /// first character. Sets `is_symbol`.
  std::size_t prefix_length(std::string_view text, bool& is_symbol) const;
  /// Returns whether no piece has ▁ behind another character, so that words that begin with ▁ can
  /// be encoded one by one.
  bool split_at_spaces() const { return split_at_spaces_; }

 private:
  BytePairRanks segmentable_, reserved_;
  hugging_face::TokenTrie symbols_;
  std::vector<float> scores_;
  std::vector<PieceType> types_;
  std::vector<std::int32_t> id_of_byte_ = std::vector<std::int32_t>(256, -1);
  std::int32_t unk_id_;
  bool split_at_spaces_ = true;
};

/// What a model's pieces say about single characters. Most Chinese characters are in no piece but
/// their own, so that a look into this table encodes them. Immutable and thread-safe.
class CharacterTable {
 public:
  CharacterTable(const ModelFile& model, const Pieces& pieces);

  /// Returns whether no piece that text is segmented into has `c` beside other characters. Such a
  /// character is merged with no other. Characters beyond the table count as merged.
  bool is_alone(char32_t c) const { return c < kSize && (entries_[c] & kMerged) == 0; }
  /// Returns the id of the piece that is `c` alone; −1 when there is none. `c` is below kSize.
  std::int32_t id(char32_t c) const { return static_cast<std::int32_t>(entries_[c] >> 1) - 1; }

  static constexpr char32_t kSize = 0x10000;

 private:
  static constexpr std::uint32_t kMerged = 1;
  std::vector<std::uint32_t> entries_;  ///< (id + 1) * 2, and kMerged
};

}  // namespace megatron::sentencepiece
