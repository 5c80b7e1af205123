// The results of a request for completions in OpenAI's form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/inference/completions/completion_request.h"
#include "megatron/inference/text_request.h"

namespace megatron {

class Tokenizer;

/// The results of one prompt of a request.
struct PromptResult {
  std::vector<std::int64_t> ids;       ///< of the prompt
  std::vector<Generation> texts = {};  ///< samples, or beams of which there may be fewer than n
};

/// Returns the text that each id adds behind those before it, the first of them behind `context`.
std::vector<std::string> token_texts(const Tokenizer& tokenizer,
                                     std::span<const std::int64_t> context,
                                     std::span<const std::int64_t> ids);

/// Returns the list of choices, n of each prompt. A token of "logprobs" is the text that its id
/// adds behind the one before it, U+FFFD where that is a part of a character. "text_offset" counts
/// characters, and "top_logprobs" includes the token itself.
/// "routed_experts" is Generation::routed_experts.
JsonText completion_choices(const CompletionRequest& request, const Tokenizer& tokenizer,
                            std::vector<PromptResult> results);

/// The numbers of tokens of a request, as OpenAI's "usage" reports them.
struct CompletionUsage {
  std::int64_t prompt_tokens = 0;      ///< of all prompts, each counted once
  std::int64_t completion_tokens = 0;  ///< of all sampled texts
  std::int64_t longest = 0;            ///< a prompt with one of its texts; not reported
};
/// Returns the usage of a request from the results of all its prompts.
CompletionUsage usage_of(const std::vector<PromptResult>& results);

}  // namespace megatron
