// The Unigram model (Kudo, 2018) of tokenizer.json: the segmentation of highest total score, by
// Viterbi's algorithm in float64.
#pragma once

#include <string>

#include "megatron/tokenizers/character_trie.h"
#include "megatron/tokenizers/hugging_face/model.h"

namespace megatron::hugging_face {

class Unigram : public Model {
 public:
  /// `lists` holds pieces and scores if it is not null; else `model` does.
  Unigram(const JsonCursor& model, ModelLists* lists);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  void read_pieces(const JsonCursor& model);
  void append(std::string_view piece, std::vector<std::int32_t>& ids) const;
  std::int32_t unk_or_throw(std::string_view text) const;

  Vocabulary vocabulary_;
  CharacterTrie trie_;
  std::vector<double> scores_;  ///< by id
  double unk_score_;
  std::int32_t unk_id_ = -1;
  bool byte_fallback_;
  std::vector<std::int32_t> id_of_byte_;  ///< ids of <0x00>…<0xFF>
};

}  // namespace megatron::hugging_face
