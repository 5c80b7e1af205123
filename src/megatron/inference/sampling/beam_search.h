// Beam search as transformers does it (GenerationMixin._beam_search with early_stopping=False),
// without the model: it is told log-probabilities and says which texts to continue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "megatron/config/sampling_params.h"

namespace megatron {

/// A text that is continued.
struct Beam {
  std::vector<std::int64_t> ids;  ///< the new tokens
  double logprob = 0;             ///< of the new tokens together
  std::size_t parent = 0;         ///< the beam of the step before that it continues
};

/// A text that has ended.
struct FinishedBeam {
  std::vector<std::int64_t> ids;  ///< the new tokens, without the stop token
  double score = 0;               ///< log-probability / (tokens with the stop token)^length_penalty
  bool has_stopped = false;       ///< at a stop token, not at the limit of tokens
};

class BeamSearch {
 public:
  /// Uses num_beams, length_penalty and stop_token_ids. `max_new_tokens` is at least 1.
  BeamSearch(const SamplingParams& params, std::int64_t max_new_tokens);

  /// Returns the beams to continue, best first: at first one without tokens. Empty: the search is
  /// over.
  const std::vector<Beam>& running() const { return running_; }
  /// Continues the beams. `logprobs` has a row for each, after penalties.
  void step(std::span<const std::span<const float>> logprobs);
  /// Ends the texts that run as they are.
  void stop();
  /// Returns the texts that have ended, best first: num_beams many at the end of the search, or
  /// fewer if the vocabulary has no more.
  const std::vector<FinishedBeam>& finished() const { return finished_; }

 private:
  struct Candidate {
    std::size_t parent;
    std::int64_t id;
    double logprob;
  };
  std::vector<Candidate> best_candidates(std::span<const std::span<const float>> logprobs) const;
  void finish(FinishedBeam beam);
  double score(double logprob, std::int64_t length) const;

  std::size_t num_beams_;
  double length_penalty_;
  std::vector<std::int64_t> stop_token_ids_;
  std::int64_t max_new_tokens_;
  std::int64_t length_ = 0;  ///< tokens of each running beam
  std::vector<Beam> running_{{}};
  std::vector<FinishedBeam> finished_;
};

}  // namespace megatron
