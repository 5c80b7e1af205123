// What datasets need to know of a tokenizer.
#pragma once

#include <cstdint>

#include "megatron/config/settings.h"
#include "megatron/datasets/description.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct DataTokenizer {
  std::int64_t vocab_size = 0;  ///< used by mock data only
  std::int64_t eod = -1;
  std::int64_t pad = -1;  ///< −1: none. Equal to `eod`: ignored unless allow_ambiguous_pad_tokens
  TokenizerIdentity identity = {};
};

/// Takes the numbers from the tokenizer and its identity, part of the names of index caches, from the settings.
DataTokenizer data_tokenizer(const Tokenizer& tokenizer, const TokenizerConfig& config);

}  // namespace megatron
