// Chooses the tokens of sequences: penalties, which depend on what a sequence has said, the draw,
// and log-probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "megatron/inference/sampling/sampling.h"

namespace megatron {

struct TokenLogprob {
  std::int64_t id = 0;
  double logprob = 0;  ///< natural logarithm
};

struct SampledToken {
  std::int64_t id = 0;
  /// log softmax of the model's logits, before penalties and temperature; 0 unless
  /// SamplingParams::needs_logprobs().
  double logprob = 0;
  std::vector<TokenLogprob> best =
      {};  ///< of the most likely tokens, SamplingParams::logprobs many
};

/// What is remembered of one sequence to choose its next tokens. A sequence that is computed again,
/// or that moves to another batch, keeps its sampler and so its text.
class SequenceSampler {
 public:
  /// `params` must outlive the sampler. `site` has the prompt and the number of the sample.
  SequenceSampler(const SamplingParams& params, std::span<const std::int64_t> prompt,
                  SamplingSite site);

  /// Chooses the token at a position of the sequence from the model's logits, which are sound.
  SampledToken sample(std::span<const float> logits, std::int64_t position) const;
  /// Counts a token of the text.
  void append(std::int64_t id);

  /// Returns the number of tokens of the text.
  std::int64_t num_new_tokens() const { return num_new_tokens_; }
  /// Returns whether a stop token or stop string may end the text at the next token.
  bool may_stop() const { return num_new_tokens_ >= params_->min_new_tokens; }
  /// Changes logits as `sampling.h` describes under 1. The formulas are those of vLLM; the
  /// repetition penalty is also that of transformers.
  void apply_penalties(std::span<float> logits) const;

 private:
  bool has_penalties() const;

  const SamplingParams* params_;
  SamplingSite site_;
  std::unordered_map<std::int64_t, std::int64_t> counts_;  ///< in the text; 0: only in the prompt
  std::int64_t num_new_tokens_ = 0;
};

/// A row of logits and the token that follows it in a given text.
struct GivenRow {
  std::span<const float> logits;
  std::int64_t id;
  std::int64_t num_best = 0;  ///< of the most likely tokens to report
};

/// Returns these tokens with their log-probabilities, in parallel.
std::vector<SampledToken> score_rows(std::span<const GivenRow> rows);

/// A row of logits and the sequence whose token it decides.
struct SamplingRow {
  const SequenceSampler* sampler;
  std::span<const float> logits;
  std::int64_t position;
};

/// Samples a token for each row, in parallel.
std::vector<SampledToken> sample_rows(std::span<const SamplingRow> rows);

}  // namespace megatron
