// A text that an engine generates, and the group of the texts of one request, which share a prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "megatron/inference/sampling/beam_search.h"
#include "megatron/inference/sampling/stop_strings.h"
#include "megatron/inference/text_request.h"
#include "megatron/ops/sequence_cache.h"

namespace megatron {

/// A request, and what its texts share.
struct SequenceGroup {
  TextRequest request;
  std::shared_ptr<Grammar> grammar = nullptr;  ///< null without a constraint
  std::int64_t max_new_tokens = 0;             ///< at most as many as the model has positions for
  SequenceId id = 0;
  std::int64_t num_open = 1;  ///< samples that have not ended
  std::vector<SampledToken> prompt_tokens = {};
  std::int64_t num_cached = -1;  ///< Generation::num_cached; -1: no pass has begun
  double start_s = 0;            ///< Generation::start_s
  Pooler pooler = {request.pooling, std::ssize(request.prompt)};
  std::unique_ptr<BeamSearch> search = nullptr;  ///< null without beams
  std::vector<SequenceId> beams = {};            ///< of search->running()

  /// Returns the first token of the prompt that has no score yet.
  std::int64_t next_scored() const { return request.first_scored + std::ssize(prompt_tokens); }
  /// Tells a result how its prompt was begun.
  void tell_start(Generation& result) const;
  /// Returns why a text with max_new_tokens tokens ends.
  FinishReason limit() const {
    return max_new_tokens < request.params.max_new_tokens ? FinishReason::max_positions
                                                          : FinishReason::length;
  }
};

/// A text that is being generated.
struct RunningText {
  /// `tokenizer` is read where the request has stop strings, and must outlive the text.
  RunningText(std::shared_ptr<SequenceGroup> of, std::int64_t sample, const Tokenizer* tokenizer,
              const std::shared_ptr<CacheMemory>& memory);

  /// Adds a token. Returns why the text ends, if it does.
  std::optional<FinishReason> append(const SampledToken& token);
  /// Adds the experts [tokens, MoE layers, topk] of the tokens from position `first` on, int32 on
  /// the CPU. Those of a token that is computed again remain as they were.
  void add_routed_experts(std::int64_t first, const at::Tensor& experts);
  /// Returns the log-probabilities of the next token of a beam, after penalties.
  std::vector<float> penalized_logprobs(std::span<const float> logits) const;
  /// Returns the result of a text that has ended.
  Generation take_result(FinishReason reason);

  std::shared_ptr<SequenceGroup> group;
  std::int64_t number;  ///< among the samples of the request
  SequenceSampler sampler;
  std::unique_ptr<GeneratedText> text;  ///< null without stop strings
  SequenceCache cache;
  Generation result = {};
  std::vector<std::unique_ptr<RunningText>> siblings = {};  ///< other samples, until they fork
  std::vector<float> logprobs = {};                         ///< of a beam that is held
};

}  // namespace megatron
