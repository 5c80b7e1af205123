// The tokenizer that belongs to a checkpoint: the one it was trained with, or the files of its
// Hugging Face folder, unless flags say otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct LoadedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  /// End a text: the tokenizer's eod; with a stored one also eos_token_id of
  /// generation_config.json or config.json.
  std::vector<std::int64_t> stop_token_ids;
  /// Remarks for stderr: the tokenizer of the flags is not the one of the weights.
  std::vector<std::string> notes = {};
};

/// Opens the tokenizer of `flags` when they name one, else the checkpoint's. UserError when there
/// is none.
LoadedTokenizer load_tokenizer(const TokenizerConfig& flags, const CheckpointSource& source);

}  // namespace megatron
