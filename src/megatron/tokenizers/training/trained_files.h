// Writes trained tokenizers in the format of the `tokenizers` package, as its save() does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/training/bpe_trainer.h"
#include "megatron/tokenizers/training/trainer_options.h"

namespace megatron {

/// Pieces with their scores, which are logarithms of probabilities.
struct TrainedUnigram {
  std::vector<std::pair<std::string, double>> pieces;
  std::optional<std::int64_t> unk_id;
};

/// Return a tokenizer.json. The options have no unset values (with_defaults()).
std::string tokenizer_json(const TokenizerTrainerOptions& options, const TrainedBpe& model);
std::string tokenizer_json(const TokenizerTrainerOptions& options, const TrainedUnigram& model);

/// Returns a tokenizer_config.json for `transformers`. Special tokens with the usual names (as
/// <|endoftext|>, </s>, [PAD]) get the roles that these names say.
std::string tokenizer_config_json(const TokenizerTrainerOptions& options);

/// Returns the special token that ends documents; "" when none has a usual name.
std::string eos_token_of(std::span<const std::string> special_tokens);

}  // namespace megatron
