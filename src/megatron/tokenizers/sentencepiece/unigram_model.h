// SentencePiece's Unigram model (Kudo, 2018): the segmentation of highest total score, by Viterbi's
// algorithm.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/best_segmentation.h"
#include "megatron/tokenizers/character_trie.h"
#include "megatron/tokenizers/sentencepiece/pieces.h"

namespace megatron::sentencepiece {

/// The package sums the scores of a text in single precision from its beginning on, so that the
/// best pieces of a word can depend on the sum before it: rounding decides between segmentations
/// whose sums differ by less. Immutable and thread-safe. `pieces` must outlive it.
class UnigramModel {
 public:
  using Found = std::function<void(const EncodedPiece&)>;
  using Search = BestSegmentation<float>;

  UnigramModel(const ModelFile& model, const Pieces& pieces);
  /// Calls found(piece) with the pieces of `text`, which is normalized, in its order. The sum of
  /// scores before it is `before`; returns that after it.
  template <class Each>
  float encode(std::string_view text, Search& search, const Each& found, float before = 0) const {
    return search.run(
        trie_, text, [&](std::int32_t id) { return scores_[static_cast<std::size_t>(id)]; },
        unk_score_, [&](std::string_view) { return pieces_.unk_id(); },
        [&](const TextPart& part) {
          found(EncodedPiece{text.substr(part.begin, part.end - part.begin), part.id});
        },
        before, kLimit);
  }

  /// Calls found(piece) with the pieces of a short `word` whatever is before it, if is_certain()
  /// says so. Returns by how much the exact sum of their scores exceeds that of all others.
  float encode_exactly(std::string_view word, const Found& found) const;
  /// Returns whether rounding cannot change the pieces that encode_exactly() found for a word of so
  /// many bytes, with that margin, when the sum of scores before the word is `before`.
  bool is_certain(float margin, std::size_t bytes, float before) const {
    const auto count = static_cast<float>(bytes);
    const float largest_sum = std::abs(before) + count * largest_score_;
    return largest_sum <= kLimit && margin > kRoundings * count * largest_sum;
  }
  /// Returns the score of an id of the output. That of an unknown character whose bytes are written
  /// is the score of its first byte; the others have 0.
  float score_of_output(std::int32_t id) const {
    return output_scores_[static_cast<std::size_t>(id)];
  }

 private:
  /// Every sum is rounded by at most 2^-24 of the largest one. Two segmentations of n characters
  /// have at most 2 n sums. A little is added for the rounding of this bound itself.
  static constexpr float kRoundings = 2.05F / (1 << 24);

  /// Version 0.2.3 of the package begins larger sums at 0 again.
  static constexpr float kLimit = 100'000;

  const Pieces& pieces_;
  CharacterTrie trie_;
  std::vector<float> scores_;  ///< of the trie's pieces
  std::vector<float> output_scores_;
  float unk_score_;
  float largest_score_ = 0;  ///< the largest absolute value
};

}  // namespace megatron::sentencepiece
