// Splits texts into the words that a model is trained on.
#pragma once

#include <memory>
#include <string_view>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/hugging_face/normalizer.h"
#include "megatron/tokenizers/hugging_face/pre_tokenizer.h"
#include "megatron/tokenizers/training/word_counts.h"

namespace megatron {

/// The normalizer and the pre-tokenizer of a tokenizer.json. Immutable and thread-safe.
class WordCounter {
 public:
  /// Either component may be null.
  WordCounter(const Json& normalizer, const Json& pre_tokenizer);

  /// Adds the words of `text`, which is valid UTF-8. Those of a byte-level pre-tokenizer are added
  /// as their bytes.
  void count(std::string_view text, WordCounts& counts) const;
  /// Returns the words as the model sees them: those of a byte-level pre-tokenizer in the byte
  /// alphabet.
  WordCounts finish(WordCounts counts) const;

 private:
  std::unique_ptr<hugging_face::Normalizer> normalizer_;
  std::unique_ptr<hugging_face::PreTokenizer> pre_tokenizer_;
  const WordSplitter* byte_level_words_ = nullptr;  ///< of pre_tokenizer_, if it has them
};

}  // namespace megatron
