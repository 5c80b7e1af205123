// The results of a request for completions in OpenAI's form, with the members that vLLM adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/inference/completions/completion_request.h"
#include "megatron/inference/text_request.h"
#include "megatron/tokenizers/decode_stream.h"

namespace megatron {

/// The results of one prompt of a request.
struct PromptResult {
  std::vector<std::int64_t> ids;       ///< of the prompt
  std::vector<Generation> texts = {};  ///< samples, or beams of which there may be fewer than n
};

/// Returns the text that each id adds behind those before it, the first of them behind `context`.
std::vector<std::string> token_texts(const Tokenizer& tokenizer,
                                     std::span<const std::int64_t> context,
                                     std::span<const std::int64_t> ids);

/// What log-probabilities are listed under.
struct TokenName {
  std::string name;
  std::string bytes;  ///< that the token adds to the text
};
/// Returns the name of a token behind others, `before`, which are empty where a text begins: the
/// text that it adds; "bytes:\xe2\x80" and the like if that is no valid UTF-8; or "token_id:ID".
TokenName token_name(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                     std::int64_t id, bool as_id = false);

/// Returns vLLM's "stop_reason": the stop string, or the one of stop_token_ids of the request, that
/// ended a text; null if none of them did.
JsonText stop_reason(const Generation& text, const SamplingParams& params);

/// Returns vLLM's "prompt_logprobs" of a prompt whose tokens but the first are `tokens`: null, and
/// for each of them an object {ID: {"logprob", "rank", "decoded_token"}} of it and the likeliest.
JsonText prompt_logprobs_json(const Tokenizer& tokenizer, std::int64_t first_id,
                              const std::vector<SampledToken>& tokens, std::int64_t num_best);

/// Writes one choice, at once or in the pieces of a stream. "text_offset" counts characters of the
/// whole text, and "top_logprobs" includes the token itself. What it is made of must outlive it.
class CompletionChoice {
 public:
  /// `prompt` is the index of the prompt whose ids are `prompt_ids`.
  CompletionChoice(const CompletionRequest& request, const Tokenizer& tokenizer, std::size_t prompt,
                   const std::vector<std::int64_t>& prompt_ids);

  /// Returns a choice of what is new, without its index. The first one has the prompt if the
  /// request wants that. `finished` is null unless the text has ended; its stop token is the last
  /// of the tokens, without a text.
  JsonText add(std::string text, std::vector<SampledToken> tokens,
               const std::vector<SampledToken>& prompt_tokens, const Generation* finished);

 private:
  JsonText logprobs_of(const std::vector<SampledToken>& tokens);

  const CompletionRequest& request_;
  const Tokenizer& tokenizer_;
  const std::size_t prompt_;
  const std::vector<std::int64_t>& prompt_ids_;
  bool has_begun_ = false;
  DecodeStream pieces_;               ///< of the text, by which offsets are counted
  std::size_t offset_ = 0;            ///< of the next token
  std::vector<std::int32_t> before_;  ///< the last token, or none
  std::string_view echoed_;           ///< what is left of a prompt that is a text, if it is shown
  std::size_t num_echoed_ = 0;        ///< tokens of it
};

/// Returns the list of choices, n of each prompt.
JsonText completion_choices(const CompletionRequest& request, const Tokenizer& tokenizer,
                            std::vector<PromptResult> results);

/// The numbers of tokens of a request, as OpenAI's "usage" reports them.
struct CompletionUsage {
  std::int64_t prompt_tokens = 0;      ///< of all prompts, each counted once
  std::int64_t cached_tokens = 0;      ///< of these, that the prefix cache had
  std::int64_t completion_tokens = 0;  ///< of all sampled texts, with their stop tokens
  std::int64_t reasoning_tokens = 0;   ///< of these, in answers to chats
  std::int64_t longest = 0;  ///< a prompt with one of its texts, or the longer one; not reported
};
/// Returns the usage of a request from the results of all its prompts. `answers`:
/// CompletionRequest::answers.
CompletionUsage usage_of(const std::vector<PromptResult>& results, bool answers = false);
/// Returns "usage", without the tokens of reasoning.
JsonText usage_json(const CompletionUsage& usage);

}  // namespace megatron
