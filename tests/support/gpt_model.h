// Declares a GPT on a rank.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/models/gpt_model.h"

namespace megatron {

/// Declares a GPT as make_model() does.
inline std::unique_ptr<Model> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                             const MakeModelOptions& options) {
  return make_model(gpt_spec(config), config, rank, options);
}
inline std::unique_ptr<Model> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                             std::int64_t vocab_pad_multiple = 128) {
  return make_gpt_model(config, rank, MakeModelOptions{.vocab_pad_multiple = vocab_pad_multiple});
}

}  // namespace megatron
