// The tokenizer that belongs to a checkpoint: the one it was trained with, or the files of its Hugging Face folder, unless flags say otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct StoredTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int64_t> stop_ids;  ///< end a text: the tokenizer's eod; with a stored tokenizer also generation_config.json's eos_token_id
};

/// Opens the tokenizer of `flags` when they name one, else the checkpoint's. UserError when there is none.
StoredTokenizer open_tokenizer(const TokenizerConfig& flags, const CheckpointSource& source);

}  // namespace megatron
