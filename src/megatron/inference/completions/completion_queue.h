// Serves requests for completions by an engine, where their texts share passes with those of all
// others.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "megatron/inference/completions/completion_response.h"
#include "megatron/inference/engine.h"

namespace megatron {

struct LoadedTokenizer;

/// A request whose texts are all there, or that failed.
struct FinishedCompletion {
  std::uint64_t number = 0;  ///< that add() was given
  CompletionRequest request = {};
  std::vector<PromptResult> results = {};  ///< one of each prompt
  std::exception_ptr error = {};           ///< a UserError; then there are no results
};

/// Runs requests for completions with an engine, and returns each when all its texts have ended.
/// Ranks of a model make the same calls in the same order. Not thread-safe.
class CompletionQueue {
 public:
  /// The model and the tokenizer must outlive the queue. What EngineOptions has of the tokenizer is
  /// set here.
  CompletionQueue(const ModelRunner& model, const LoadedTokenizer& tokenizer,
                  EngineOptions options);

  /// Adds a request. Its number tells it from the others, and selects the random numbers of one
  /// without a seed. UserError that names `source` when it cannot be served; nothing is added then.
  /// Collective over the ranks of the model.
  void add(std::uint64_t number, CompletionRequest request, const std::string& source);
  /// Computes one pass and returns what it finished. Collective like Engine::step().
  std::vector<FinishedCompletion> step();

  bool is_idle() const { return requests_.empty(); }
  std::int64_t num_prompts() const { return std::ssize(places_); }  ///< that are not finished
  std::int64_t num_new_tokens() const { return num_new_tokens_; }   ///< so far, of all requests

 private:
  struct Open {
    std::string source;  ///< names it in errors
    CompletionRequest request = {};
    std::vector<PromptResult> results = {};
    std::int64_t num_left = 0;  ///< prompts
  };
  struct Place {
    std::uint64_t number = 0;
    std::size_t prompt = 0;
  };

  /// Ends a request with all its prompts.
  void fail(std::uint64_t number);

  const LoadedTokenizer& tokenizer_;
  Engine engine_;
  std::map<std::uint64_t, Open> requests_;
  std::map<SequenceId, Place> places_;
  std::int64_t num_new_tokens_ = 0;
};

}  // namespace megatron
