// GPT: embedding, transformer block, output layer. Parameter names are Megatron Core's, in the Transformer Engine spelling.
#pragma once

#include <memory>

#include "megatron/models/language_model.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// Declares a GPT for `rank` (config resolved and valid); bind it with a ParamStore before use. Parameters are reachable through Module::visit.
std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank, std::int64_t vocab_pad_multiple = 128);

}  // namespace megatron
