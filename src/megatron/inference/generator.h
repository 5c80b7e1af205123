// Generates text token by token: prefill runs the prompts through the model and fills the caches,
// then each decode step feeds one token of every sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/inference/sampling.h"
#include "megatron/pipeline/model_runner.h"

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

struct Prompt {
  std::span<const std::int64_t> ids;  ///< at least one
  std::uint64_t index = 0;            ///< selects the random numbers (SamplingSite::prompt)
};

class Generator {
 public:
  /// `model` must have its weights bound and must outlive the generator. UserError when an option
  /// is out of range.
  Generator(const ModelRunner& model, GeneratorOptions options);

  /// Generates a continuation of each prompt, all in the same passes. With our GEMM
  /// (ops/matmul.h) a continuation has the bits that it has alone, unless experts have a
  /// capacity, which the tokens of a pass share. `on_token` is called with each new token and the
  /// place of its prompt. Collective over the ranks of the model.
  std::vector<Generation> generate(
      std::span<const Prompt> prompts,
      const std::function<void(std::size_t place, std::int64_t id)>& on_token = nullptr) const;
  /// Generates a continuation of one prompt.
  Generation generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                      const std::function<void(std::int64_t id)>& on_token = nullptr) const;

 private:
  /// Draws the token at a position of a prompt's text.
  std::int64_t next_token(std::span<const float> logits, std::uint64_t prompt_index,
                          std::int64_t position) const;

  ModelRunner model_;
  GeneratorOptions options_;
};

}  // namespace megatron
