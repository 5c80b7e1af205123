// Reads a tokenizer.json. The vocabulary and the merges of a BPE model, which are most of the file,
// are read apart from the rest, so that a tokenizer of 128,000 tokens starts at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "megatron/base/json.h"
#include "megatron/tokenizers/bpe.h"
#include "megatron/tokenizers/vocabulary.h"

namespace megatron::hugging_face {

/// The long lists of a BPE model.
struct BpeLists {
  Vocabulary vocabulary;
  Bpe::MergeViews merges;
  std::shared_ptr<const void> owner;  ///< of the texts of `merges`
};

struct TokenizerJson {
  std::shared_ptr<const Json> root;    ///< without model.vocab and model.merges if `lists` is set
  std::optional<BpeLists> lists = {};  ///< unset for other models, and for files with mistakes
};

/// Throws a UserError that names the file when it is not valid JSON.
TokenizerJson read_tokenizer_json(const std::filesystem::path& path);

}  // namespace megatron::hugging_face
