// Encodes texts that chat templates make.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/hugging_face/token_trie.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Encodes a text in which special tokens stand by their names: each name becomes its id, and no
/// others are added. For a tokenizer.json, the ids are those of transformers'
/// apply_chat_template(). Thread-safe. The tokenizer must outlive the object.
class ChatEncoder {
 public:
  explicit ChatEncoder(const Tokenizer& tokenizer);
  std::vector<std::int32_t> encode(std::string_view text) const;

 private:
  const Tokenizer& tokenizer_;
  hugging_face::TokenTrie names_;  ///< empty when the tokenizer finds the names itself
};

}  // namespace megatron
