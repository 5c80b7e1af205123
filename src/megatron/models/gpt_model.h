// The GPT model: embedding, transformer block, output layer. Parameter names are Megatron Core's in
// the Transformer Engine spelling.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/models/make_model_options.h"
#include "megatron/models/model.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// Declares a GPT, or the pipeline stages of it that `rank` holds. `config` must be resolved and
/// valid. Bind the parameters, which Module::visit reaches, to a ParamStore before use. When
/// embedding and tied output layer are on different ranks, both ranks declare the word embeddings
/// (StageSharing).
std::unique_ptr<Model> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                      const MakeModelOptions& options);
std::unique_ptr<Model> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                      std::int64_t vocab_pad_multiple = 128);

}  // namespace megatron
