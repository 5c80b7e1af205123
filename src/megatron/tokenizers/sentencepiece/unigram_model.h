// SentencePiece's Unigram model (Kudo, 2018): the segmentation of highest total score, by Viterbi's
// algorithm.
#pragma once

#include <functional>
#include <string_view>

#include "megatron/tokenizers/piece_trie.h"
#include "megatron/tokenizers/sentencepiece/pieces.h"

namespace megatron::sentencepiece {

/// Immutable and thread-safe. `pieces` must outlive it.
class UnigramModel {
 public:
  UnigramModel(const ModelFile& model, const Pieces& pieces);
  /// Calls found(piece) with the pieces of `text`, which is normalized, in its order.
  void encode(std::string_view text, const std::function<void(const EncodedPiece&)>& found) const;

 private:
  const Pieces& pieces_;
  PieceTrie trie_;
  float unk_score_, max_score_;
};

}  // namespace megatron::sentencepiece
