// Generates text token by token: prefill runs the prompt through the model and fills the KV cache,
// then each decode step feeds one token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/inference/sampling.h"
#include "megatron/models/language_model.h"

namespace megatron {

enum class FinishReason {
  stop,           ///< the end-of-document token was sampled
  length,         ///< max_new_tokens tokens were sampled
  max_positions,  ///< the model's maximum sequence length is reached
};
/// Returns "stop", "length" or "max_positions".
std::string_view finish_reason_name(FinishReason reason);

struct Generation {
  std::vector<std::int64_t> ids;  ///< the new tokens, without the end-of-document token
  FinishReason finish_reason = FinishReason::length;
};

struct GeneratorOptions {
  SamplingOptions sampling = {};
  std::int64_t max_new_tokens = 128;
  std::vector<std::int64_t> stop_token_ids = {};  ///< tokens that end the generation
};

class Generator {
 public:
  /// `model` must have its weights bound and must outlive the generator. UserError when an option
  /// is out of range.
  Generator(LanguageModel& model, GeneratorOptions options);

  /// Generates a continuation of `prompt` (at least one id). `prompt_index` selects the random
  /// numbers (SamplingSite::prompt). `on_token` is called with each new token.
  Generation generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                      const std::function<void(std::int64_t id)>& on_token = nullptr);

 private:
  LanguageModel& model_;
  GeneratorOptions options_;
};

}  // namespace megatron
