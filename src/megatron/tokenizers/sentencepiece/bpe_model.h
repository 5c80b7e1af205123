// SentencePiece's BPE: of all adjacent pairs that are a piece, the one of highest score is merged
// first, the leftmost among equals.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/tokenizers/sentencepiece/pieces.h"

namespace megatron::sentencepiece {

/// Immutable and thread-safe. `pieces` must outlive it.
class BpeModel {
 public:
  explicit BpeModel(const Pieces& pieces);
  /// Appends the pieces of `text`, which is normalized.
  void encode(std::string_view text, std::vector<EncodedPiece>& out) const;

 private:
  struct Symbol;
  struct Merges;
  std::int32_t merged_id(const Symbol& left, const Symbol& right, Merges& merges) const;
  void merge_short(std::vector<Symbol>& symbols, Merges& merges) const;
  void merge_long(std::vector<Symbol>& symbols, Merges& merges) const;
  void resegment(std::string_view piece, const Merges& merges,
                 std::vector<EncodedPiece>& out) const;

  const Pieces& pieces_;
  std::vector<std::uint32_t> priority_;  ///< by id; lower merges first, equal for equal scores
  bool has_unused_ = false;
};

}  // namespace megatron::sentencepiece
