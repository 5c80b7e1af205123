// The "model" of tokenizer.json, which encodes the words of a text one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/vocabulary.h"

namespace megatron::hugging_face {

/// Immutable and thread-safe.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of `word`, which is valid UTF-8.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;

  /// Returns whether a word is encoded by merges alone, which make tokens of adjacent bytes of the
  /// byte alphabet, so that IndependentParts of its vocabulary may be encoded by merge_part().
  virtual bool has_independent_parts() const { return false; }
  /// Appends what merges make of a part of a word.
  virtual void merge_part(std::string_view part, std::vector<std::int32_t>& ids) const {
    encode(part, ids);
  }
};

struct ModelLists;

/// Reads a BPE, WordPiece, Unigram or WordLevel model. Throws UserErrors for other types, missing
/// fields and fields of wrong types. `lists` holds the lists that are not in `model`; null: they
/// are.
std::unique_ptr<Model> make_model(const JsonCursor& model, ModelLists* lists);
/// Read a model of one type.
std::unique_ptr<Model> make_bpe_model(const JsonCursor& model, ModelLists* lists);
std::unique_ptr<Model> make_word_piece(const JsonCursor& model, ModelLists* lists);
std::unique_ptr<Model> make_word_level(const JsonCursor& model, ModelLists* lists);
std::unique_ptr<Model> make_unigram(const JsonCursor& model, ModelLists* lists);

}  // namespace megatron::hugging_face
