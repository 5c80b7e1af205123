// Generates text token by token: prefill runs the prompts through the model and fills the caches,
// then each decode step feeds one token of every sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/inference/sampling/sequence_sampler.h"
#include "megatron/pipeline/model_runner.h"

namespace megatron {

class Tokenizer;

enum class FinishReason {
  stop,           ///< a stop token was sampled, or the text has a stop string
  length,         ///< max_new_tokens tokens were sampled
  max_positions,  ///< the model's maximum sequence length is reached
};
/// Returns "stop", "length" or "max_positions".
std::string_view finish_reason_name(FinishReason reason);

struct Generation {
  std::vector<std::int64_t> ids;  ///< the new tokens, without a stop token
  FinishReason finish_reason = FinishReason::length;
  /// Bytes at the end of the text of `ids` that are no part of the result: a stop string and what
  /// its last token has behind it.
  std::size_t num_cut_bytes = 0;
  /// The tokens of `ids` with log-probabilities, if SamplingParams::needs_logprobs().
  std::vector<SampledToken> tokens = {};
  /// With log-probabilities their mean, the stop token included; of a beam its score.
  double score = 0;
};

struct Prompt {
  std::span<const std::int64_t> ids;  ///< at least one
  std::uint64_t index = 0;            ///< selects the random numbers (SamplingSite::prompt)
  std::uint64_t sample = 0;           ///< likewise, among several texts of a prompt
};

class Generator {
 public:
  using OnToken = std::function<void(std::size_t place, std::int64_t id)>;

  /// `model` must have its weights bound. It and the tokenizer, which only stop strings need, must
  /// outlive the generator. UserError when an option is out of range.
  Generator(const ModelRunner& model, SamplingParams params, const Tokenizer* tokenizer = nullptr);

  /// Generates a continuation of each prompt, all in the same passes. With our GEMM
  /// (ops/matmul.h) a continuation has the bits that it has alone, unless experts have a
  /// capacity, which the tokens of a pass share. `on_token` is called with each new token and the
  /// place of its prompt. Collective over the ranks of the model.
  std::vector<Generation> generate(std::span<const Prompt> prompts,
                                   const OnToken& on_token = nullptr) const;
  /// Generates a continuation of one prompt.
  Generation generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                      const std::function<void(std::int64_t id)>& on_token = nullptr) const;

  /// Generates SamplingParams::n continuations of each prompt: samples in their order, the best
  /// `n` of `best_of` by mean log-probability, or the best beams (fewer if the vocabulary has no
  /// more). Samples share passes, and `on_token` gets their places. Collective like generate().
  std::vector<std::vector<Generation>> generate_all(std::span<const Prompt> prompts,
                                                    const OnToken& on_token = nullptr) const;

 private:
  void check_row(std::span<const float> logits, const Prompt& prompt, std::int64_t position) const;
  std::vector<Generation> search_beams(const Prompt& prompt) const;

  ModelRunner model_;
  SamplingParams params_;
  const Tokenizer* tokenizer_;
};

}  // namespace megatron
