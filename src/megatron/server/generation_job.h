// Generates the texts of one HTTP request: hands its prompts to the engine, decodes tokens as they
// come, and ends with the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "megatron/inference/completions/completion_request.h"
#include "megatron/inference/completions/completion_response.h"
#include "megatron/server/http/http_server.h"

namespace megatron {

struct ServedModel;

/// What is new in one text of a job.
struct TextPiece {
  std::size_t prompt = 0;
  std::int64_t choice = 0;  ///< among the texts of the prompt
  std::string text;         ///< whole characters; what may begin a stop string is held back
  std::vector<SampledToken> tokens;  ///< with log-probabilities if the request wants them
  /// With the first piece of a text: those of the prompt, if the request wants them scored.
  std::vector<SampledToken> prompt_tokens;
  const Generation* finished = nullptr;  ///< the text has ended; only during the call
};

/// Totals of a job. Seconds are those of its slowest text.
struct JobStats {
  CompletionUsage usage;
  double queue_s = 0, prefill_s = 0, decode_s = 0;
};

/// The engine's thread calls them, one at a time; they must not block.
struct JobCallbacks {
  std::function<void(const TextPiece&)> on_piece;  ///< may be empty
  std::function<void(std::vector<PromptResult>, const JobStats&)> on_end;
  std::function<void(std::exception_ptr)> on_error;  ///< a UserError, or what made the engine fail
};

struct JobOptions {
  std::int64_t priority = 0;
  bool has_seed = false;            ///< the texts do not depend on other requests
  Pooling pooling = Pooling::none;  ///< other than none: the results are embeddings
  bool normalizes = false;          ///< embeddings have length 1
};

/// Throws the UserErrors of start_generation() that need no tokens: more than model.max_texts texts
/// in one request, or a prompt whose text is longer than its tokens can be.
void check_sizes(const ServedModel& model, std::int64_t num_texts,
                 const std::vector<CompletionPrompt>& prompts);

/// Starts the texts of some prompts and returns. The job lives until on_end or on_error was called,
/// or the client of `reply` is gone. Adds the model's end tokens to the stop tokens. UserError when
/// a prompt or its new tokens do not fit the model, or too many texts wait; then nothing is
/// started.
void start_generation(const ServedModel& model, std::vector<std::vector<std::int64_t>> prompts,
                      const SamplingParams& params, JobOptions options, HttpReply reply,
                      JobCallbacks callbacks);

}  // namespace megatron
