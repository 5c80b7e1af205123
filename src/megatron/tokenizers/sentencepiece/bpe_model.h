// SentencePiece's BPE: of all adjacent pairs that are a piece, the one of highest score is merged
// first, the leftmost among equals.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/sentencepiece/character_table.h"
#include "megatron/tokenizers/sentencepiece/pair_cache.h"
#include "megatron/tokenizers/sentencepiece/pieces.h"

namespace megatron::sentencepiece {

/// Immutable and thread-safe. The arguments must outlive it.
class BpeModel {
 public:
  BpeModel(const ModelFile& model, const Pieces& pieces, const CharacterTable& characters);
  /// Appends the pieces of `text`, which is normalized.
  void encode(std::string_view text, std::vector<EncodedPiece>& out) const;

 private:
  struct Symbol;
  void find_merges_of_ascii(const ModelFile& model);
  struct Merges;
  Symbol symbol_at(std::string_view text) const;
  PairMerge initial_merge(const Symbol& left, const Symbol& right, Merges& merges) const;
  PairMerge merge_of(const Symbol& left, const Symbol& right, Merges& merges) const;
  std::span<Symbol> merge_short(std::span<Symbol> symbols, Merges& merges) const;
  void merge_long(std::span<Symbol> symbols, Merges& merges) const;
  void append(const Symbol& symbol, const Merges& merges, std::vector<EncodedPiece>& out) const;
  void resegment(std::string_view piece, const Merges& merges,
                 std::vector<EncodedPiece>& out) const;

  const Pieces& pieces_;
  const CharacterTable& characters_;
  std::uint64_t cache_owner_;
  std::vector<std::uint32_t> priority_;     ///< by id; lower merges first, equal for equal scores
  std::vector<PairMerge> merges_of_ascii_;  ///< by pair of direct characters; see symbol_at()
  bool has_unused_ = false;
};

}  // namespace megatron::sentencepiece
