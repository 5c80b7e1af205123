// What every API needs of the model that is served.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "megatron/config/sampling_params.h"
#include "megatron/inference/pooler.h"

namespace megatron {

class GrammarCache;
class RequestServer;
struct LoadedTokenizer;
struct ServedChat;

/// Built once, by the command; it outlives the handlers of requests.
struct ServedModel {
  std::string name;  ///< as answers call it
  const LoadedTokenizer& tokenizer;
  const ServedChat* chat = nullptr;  ///< null: it has no chat template
  RequestServer& engine;
  std::shared_ptr<GrammarCache> grammars = nullptr;  ///< those of the engine; may be null
  std::int64_t max_model_len = 0;                    ///< most tokens of a prompt with its text
  /// Most bytes of the text of a prompt: so many have max_model_len of the longest tokens.
  std::size_t max_prompt_bytes = std::numeric_limits<std::size_t>::max();
  std::int64_t vocab_size = 0;            ///< of the model
  SamplingParams defaults = {};           ///< of generation_config.json; a request's values win
  double request_timeout_s = 0;           ///< after which a text ends as it is; 0: none
  std::vector<std::string> aliases = {};  ///< more names by which clients may call it
  std::int64_t embedding_size = 0;
  Pooling pooling = Pooling::last;  ///< of embeddings; a request's wins
  /// Texts of all requests that have not ended, and the most of them.
  std::shared_ptr<std::atomic<std::int64_t>> num_texts =
      std::make_shared<std::atomic<std::int64_t>>(0);
  std::int64_t max_texts = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_logprobs = 20;  ///< most of the likeliest tokens that a request may want
};

}  // namespace megatron
