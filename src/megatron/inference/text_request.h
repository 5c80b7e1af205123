// A request for texts, and the updates that an engine gives of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/inference/pooler.h"
#include "megatron/inference/sampling/sequence_sampler.h"
#include "megatron/inference/scheduler.h"

namespace megatron {

enum class FinishReason {
  stop,           ///< a stop token was sampled, or the text has a stop string
  length,         ///< max_new_tokens tokens were sampled
  max_positions,  ///< the model's maximum sequence length is reached
  deadline        ///< its time was over
};
/// Returns "stop", "length", "max_positions" or "deadline".
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
  /// The tokens of the prompt from TextRequest::first_scored on, with log-probabilities given those
  /// before. Only the first text of a request has them, if SamplingParams::prompt_logprobs.
  std::vector<SampledToken> prompt_tokens = {};
  std::vector<float> embedding = {};  ///< [h] of a request with TextRequest::pooling
  std::int64_t num_cached = 0;        ///< tokens of the prompt that the prefix cache had
  double start_s = 0;  ///< the first pass over the prompt began, on the engine's clock
  /// [tokens][MoE layers][top-k]: the experts that the routers chose for the tokens of the prompt
  /// and `ids`, if SamplingParams::return_routed_experts. The last of `ids` has none, unless a stop
  /// token follows it: no pass computes it.
  std::vector<std::vector<std::vector<std::int32_t>>> routed_experts = {};
  std::string stop_string = {};  ///< of SamplingParams::stop, that ended the text; "": none
  /// That ended the text, with its log-probability as in `tokens`; not of a beam.
  std::optional<SampledToken> stop_token = {};
  /// Returns the number of tokens that were sampled: those of `ids` and the stop token.
  std::int64_t num_sampled() const { return std::ssize(ids) + (stop_token ? 1 : 0); }
};

/// Returns the texts of a request that are its result: of more than SamplingParams::n samples the
/// best by score, best first; those without tokens are last.
std::vector<Generation> best_texts(std::vector<Generation> texts, const SamplingParams& params);

struct TextRequest {
  /// At least one token. The encoder of a model that has one reads it, unless there is `encoded`,
  /// and the decoder then begins with EngineOptions::decoder_start.
  std::vector<std::int64_t> prompt;
  /// With `n`, `best_of` or beams the request has several texts, which share the prompt. With
  /// `prompt_logprobs` and no new tokens it is only scored, and its last token needs no position.
  SamplingParams params = {};
  SamplingSite site = {};     ///< selects the random numbers; samples have successive numbers
  std::int64_t priority = 0;  ///< lower numbers are served first
  double deadline_s = std::numeric_limits<double>::infinity();  ///< on the engine's clock
  std::string source = {};        ///< names the prompt in errors; empty: by its number in `site`
  std::int64_t first_scored = 1;  ///< the first token of the prompt that `prompt_logprobs` scores
  /// Other than none: the request is for an embedding of the prompt, and has no text.
  Pooling pooling = Pooling::none;
  bool normalizes = false;  ///< divides the embedding by its L2 norm
  /// Names it in updates; no other request has the same. None: the engine chooses, for all or none.
  std::optional<std::int64_t> id = {};
  std::vector<std::int64_t> encoded = {};  ///< the text of the encoder, which `prompt` answers
};

/// News of a request: a token of a text, its end, or both.
struct Update {
  SequenceId request = 0;
  std::int64_t text = 0;  ///< number of the sample, or rank of the beam
  std::optional<std::int64_t> token = {};
  std::optional<Generation> finished = {};
  bool is_last = false;           ///< the request has ended. Beams may be fewer than `n`, or none
  std::exception_ptr error = {};  ///< the UserError that has ended the request
  /// The token with log-probabilities, if there is one and SamplingParams::needs_logprobs().
  SampledToken scored = {};
  /// With the first news of each sample: Generation::prompt_tokens.
  std::vector<SampledToken> prompt_tokens = {};
};

/// Puts the text that an update has finished, if it has, in its place among those of its request.
void take_finished(Update& update, std::vector<Generation>& texts);

}  // namespace megatron
