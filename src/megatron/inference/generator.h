// Text continues token by token: one pass over the prompt fills the layers' states, then each step
// feeds one token.
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
  stop,           ///< the end-of-document token was drawn
  length,         ///< max_new_tokens were drawn
  max_positions,  ///< the model has no position for another token
};
/// "stop", "length", "max_positions".
std::string_view finish_reason_name(FinishReason reason);

struct Generation {
  std::vector<std::int64_t> ids;  ///< the new tokens, without the end-of-document token
  FinishReason finish_reason = FinishReason::length;
};

struct GeneratorOptions {
  SamplingOptions sampling = {};
  std::int64_t max_new_tokens = 128;
  std::vector<std::int64_t> stop_token_ids = {};  ///< tokens that end a text
};

class Generator {
 public:
  /// `model` is bound and outlives the generator. UserError when an option is out of range.
  Generator(LanguageModel& model, GeneratorOptions options);

  /// Continues `prompt` (at least one id); `prompt_index` is the ordinal of its random numbers.
  /// `on_token` sees each new token as it is drawn.
  Generation generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                      const std::function<void(std::int64_t id)>& on_token = nullptr);

 private:
  LanguageModel& model_;
  GeneratorOptions options_;
};

}  // namespace megatron
