// The models of tokenizer.json that look whole words or their beginnings up: WordPiece and
// WordLevel.
#pragma once

#include <string>

#include "megatron/tokenizers/hugging_face/model.h"
#include "megatron/tokenizers/piece_trie.h"

namespace megatron::hugging_face {

/// WordPiece (Schuster and Nakajima, 2012), as in BERT: takes the longest token that the rest of
/// the word begins with. A word with an unknown part is one unk_token.
class WordPiece : public Model {
 public:
  /// `lists` holds the vocabulary if it is not null; else `model` does.
  WordPiece(const JsonCursor& model, ModelLists* lists);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  /// Appends the ids of `word`. Returns false after the first part that is unknown.
  bool segment(std::string_view word, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  PieceTrie first_, following_;  ///< tokens of a word's beginning, and those after the prefix
  std::int32_t unk_id_;
  std::size_t max_characters_;
};

/// Encodes a word as one token.
class WordLevel : public Model {
 public:
  WordLevel(const JsonCursor& model, ModelLists* lists);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::int32_t unk_id_;
};

}  // namespace megatron::hugging_face
