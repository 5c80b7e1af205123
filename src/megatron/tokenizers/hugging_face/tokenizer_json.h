// Reads a tokenizer.json. The vocabulary, the merges and the scores of a model, which are most of
// the file, are read apart from the rest, so that a tokenizer of 128,000 tokens starts at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/bpe.h"
#include "megatron/tokenizers/vocabulary.h"

namespace megatron::hugging_face {

/// The long lists of a model.
struct ModelLists {
  Vocabulary vocabulary;
  Bpe::MergeViews merges;             ///< of BPE
  std::vector<double> scores;         ///< of Unigram, by id
  std::shared_ptr<const void> owner;  ///< of the texts of `merges`
};

struct TokenizerJson {
  std::shared_ptr<const Json> root;      ///< without model.vocab and model.merges if `lists` is set
  std::optional<ModelLists> lists = {};  ///< unset for files with mistakes
};

/// Throws a UserError that names the file when it is not valid JSON.
TokenizerJson read_tokenizer_json(const std::filesystem::path& path);

}  // namespace megatron::hugging_face
