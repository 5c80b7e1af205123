// GPT: embedding, transformer block, output layer. Parameter names are Megatron Core's, in the
// Transformer Engine spelling.
#pragma once

#include <memory>

#include "megatron/config/pipeline_layout.h"
#include "megatron/models/language_model.h"
#include "megatron/parallel/rank.h"

namespace megatron {

struct GptOptions {
  std::int64_t vocab_pad_multiple = 128;
  c10::ScalarType dtype =
      c10::kFloat;  ///< of the weights (ParamStore), where a stage without any must know it
  const PipelineLayout* layout =
      nullptr;  ///< which layers are this rank's, by rank.pp; null: the whole model
};

/// Declares a GPT, or the stages of it that `rank` holds (config resolved and valid); bind it with
/// a ParamStore before use. Parameters are reachable through Module::visit. Where embedding and
/// tied output lie on different ranks, both declare the word embeddings (StageSharing).
std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                              const GptOptions& options);
std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                              std::int64_t vocab_pad_multiple = 128);

}  // namespace megatron
