// The GPT model: embedding, transformer block, output layer. Parameter names are Megatron Core's in
// the Transformer Engine spelling.
#pragma once

#include <memory>

#include "megatron/config/pipeline_layout.h"
#include "megatron/models/language_model.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// Options of make_gpt_model().
struct GptOptions {
  std::int64_t vocab_pad_multiple = 128;
  /// Dtype of the weights (see ParamStore). A stage without weights needs it for its activations.
  c10::ScalarType dtype = c10::kFloat;
  /// Assigns layers to pipeline stages; rank.pp selects this rank's. Null means the whole model.
  const PipelineLayout* layout = nullptr;
};

/// Declares a GPT, or the pipeline stages of it that `rank` holds. `config` must be resolved and
/// valid. Bind the parameters, which Module::visit reaches, to a ParamStore before use. When
/// embedding and tied output layer are on different ranks, both ranks declare the word embeddings
/// (StageSharing).
std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                              const GptOptions& options);
std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                              std::int64_t vocab_pad_multiple = 128);

}  // namespace megatron
