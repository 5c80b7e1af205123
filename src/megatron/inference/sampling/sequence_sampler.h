// Chooses the tokens of sequences: penalties and constraints, which depend on what a sequence has
// said, the draw, and log-probabilities.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "megatron/grammar/grammar.h"
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
      {};                 ///< of the most likely tokens, SamplingParams::logprobs many
  std::int64_t rank = 0;  ///< how many tokens are as likely as it or more; 0 without `logprob`
};

/// What is remembered of one sequence to choose its next tokens. A sequence that is computed again,
/// or that moves to another batch, keeps its sampler and so its text.
class SequenceSampler {
 public:
  /// `params` must outlive the sampler. `site` has the prompt and the number of the sample.
  /// `grammar` is that of SamplingParams::constraint, if there is one.
  SequenceSampler(const SamplingParams& params, std::span<const std::int64_t> prompt,
                  SamplingSite site, std::shared_ptr<Grammar> grammar = nullptr);

  /// Chooses the token at a position of the sequence from the model's logits, which are sound. It
  /// equals `draft` if one was proposed and is accepted. UserError when nothing can follow, or the
  /// constraint is too complex for the text.
  SampledToken sample(std::span<const float> logits, std::int64_t position,
                      const DraftToken* draft = nullptr) const;
  /// Guesses that token from the logits of another model: what they would give with the same random
  /// number, without a choice, or with `samples` a draw of its own. Returns nullopt where they
  /// allow no token.
  std::optional<DraftToken> guess(std::span<const float> logits, std::int64_t position,
                                  bool samples) const;
  /// Counts a token of the text.
  void append(std::int64_t id);

  /// Returns the number of tokens of the text.
  std::int64_t num_new_tokens() const { return num_new_tokens_; }
  /// Returns whether a stop token or stop string may end the text at the next token.
  bool may_stop() const { return num_new_tokens_ >= params_->min_new_tokens; }
  /// Returns whether the constraint allows nothing more, and no stop token says so.
  bool has_ended() const;
  /// Returns whether a token is one that ends the text.
  bool is_stop_token(std::int64_t id) const;
  /// Changes logits as `sampling.h` describes under 1. The formulas are those of vLLM; the
  /// repetition penalty is also that of transformers. Tokens that may not follow are impossible.
  void apply_penalties(std::span<float> logits) const;

 private:
  bool reads_counts() const;
  bool has_penalties() const;
  /// Returns the logits after penalties; empty if there are none.
  std::vector<float> penalized(std::span<const float> logits) const;
  SamplingSite site_at(std::int64_t position) const;
  bool is_stop_impossible(const TokenMask* mask) const;
  bool has_said(std::span<const std::int64_t> ids) const;
  /// Returns the token that must follow, because the budget of thinking is spent.
  std::optional<std::int64_t> forced_token() const;
  /// Returns what may follow by the constraint; null where it does not hold.
  std::shared_ptr<const TokenMask> mask() const;

  const SamplingParams* params_;
  SamplingSite site_;
  /// Of tokens in the text, if a penalty reads it; 0: only in the prompt.
  std::unordered_map<std::int64_t, std::int64_t> counts_;
  std::int64_t num_new_tokens_ = 0;
  std::shared_ptr<Grammar> grammar_;
  Grammar::State grammar_state_ = TextMatcher::kNone;
  std::exception_ptr error_;            ///< of the grammar at the last token; sample() throws it
  bool is_constrained_ = false;         ///< the text of the constraint has begun
  bool thinks_ = false;                 ///< within the budget, or while the end is forced
  std::vector<std::int64_t> last_ids_;  ///< as far as ends of thinking and words are looked for
  std::size_t num_last_ids_ = 0;        ///< most of them
};

/// A row of logits and the token that follows it in a given text.
struct GivenRow {
  std::span<const float> logits;
  std::int64_t id;
  std::int64_t num_best = 0;  ///< of the most likely tokens to report
};

/// Returns these tokens with their log-probabilities, in parallel.
std::vector<SampledToken> score_rows(std::span<const GivenRow> rows);

/// The logits that decide the next tokens of a sequence: one row, and one behind each draft.
struct SamplingRun {
  const SequenceSampler* sampler;
  std::span<const float> logits;  ///< [1 + drafts, vocab_size]
  std::int64_t position;          ///< of the first of the tokens
  std::span<const DraftToken> drafts = {};
};

/// The accepted drafts and one more token, or none behind a stop token.
struct SampledRun {
  std::vector<SampledToken> tokens = {};
  std::exception_ptr error = {};  ///< the UserError that ends the text
};

/// Samples the tokens of each run, in parallel. `check` throws if the logits of a position are not
/// sound.
std::vector<SampledRun> sample_runs(
    std::span<const SamplingRun> runs,
    const std::function<void(std::size_t run, std::span<const float> logits,
                             std::int64_t position)>& check);

}  // namespace megatron
