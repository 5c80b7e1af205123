#include "megatron/inference/completions/completion_response.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "megatron/tokenizers/decode_stream.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

std::string joined(const std::vector<std::string>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::string());
}

/// Returns the text of an id alone behind another; `before` is empty for the first of a text.
std::string token_text(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                       std::int64_t id) {
  DecodeStream stream(tokenizer, before, SpecialTokens::keep);
  std::string text = stream.add(static_cast<std::int32_t>(id));
  text += stream.finish();
  return text;
}

/// Returns the "logprobs" of tokens behind those of `context`. A log-probability of NaN is unknown.
JsonText logprobs_of(const Tokenizer& tokenizer, std::span<const std::int64_t> context,
                     const std::vector<SampledToken>& tokens,
                     const std::vector<std::string>& pieces) {
  JsonText texts = JsonText::array(), logprobs = JsonText::array(), top = JsonText::array(),
           offsets = JsonText::array();
  std::vector<std::int32_t> before;
  if (!context.empty()) before = {static_cast<std::int32_t>(context.back())};
  std::size_t offset = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const SampledToken& token = tokens[i];
    const std::string text = token_text(tokenizer, before, token.id);
    texts.push_back(text);
    logprobs.push_back(token.logprob);
    offsets.push_back(offset);
    offset += count_characters(replace_invalid_utf8(pieces[i]).value_or(pieces[i]));
    JsonText best;
    if (!std::isnan(token.logprob)) {
      std::set<std::string> seen;
      for (const TokenLogprob& one : token.best) {
        const std::string key = token_text(tokenizer, before, one.id);
        if (seen.insert(key).second) best[key] = one.logprob;  // of several the most likely
      }
      if (!seen.contains(text)) best[text] = token.logprob;
    }
    top.push_back(std::move(best));
    before = {static_cast<std::int32_t>(token.id)};
  }
  return {{"tokens", texts},
          {"token_logprobs", logprobs},
          {"top_logprobs", top},
          {"text_offset", offsets}};
}

/// Returns one choice, without its index.
JsonText choice_of(const CompletionRequest& request, const CompletionPrompt& prompt,
                   const Tokenizer& tokenizer, const PromptResult& result,
                   const std::vector<SampledToken>& prompt_tokens, const Generation& generation) {
  const auto* given = std::get_if<std::string>(&prompt);
  std::vector<std::string> pieces = token_texts(tokenizer, result.ids, generation.ids);
  std::string text = joined(pieces);
  text.resize(text.size() - std::min(text.size(), generation.num_cut_bytes));
  std::vector<SampledToken> tokens = generation.tokens;
  if (request.echo) {
    std::vector<std::string> own = token_texts(tokenizer, {}, result.ids);
    text.insert(0, given != nullptr ? *given : joined(own));
    pieces.insert(pieces.begin(), own.begin(), own.end());
    tokens.insert(tokens.begin(), prompt_tokens.begin(), prompt_tokens.end());
    tokens.insert(tokens.begin(), {.id = result.ids.front(), .logprob = std::nan("")});
  }
  JsonText choice = {{"text", text}, {"logprobs", nullptr}};
  if (request.params.reports_logprobs())
    choice["logprobs"] = logprobs_of(
        tokenizer, request.echo ? std::span<const std::int64_t>() : result.ids, tokens, pieces);
  const bool has_stopped = generation.finish_reason == FinishReason::stop;
  choice["finish_reason"] =
      finish_reason_name(has_stopped ? FinishReason::stop : FinishReason::length);
  if (request.return_token_ids) {
    choice["prompt_token_ids"] = result.ids;
    choice["token_ids"] = generation.ids;
  }
  if (request.params.return_routed_experts) choice["routed_experts"] = generation.routed_experts;
  return choice;
}

}  // namespace

std::vector<std::string> token_texts(const Tokenizer& tokenizer,
                                   std::span<const std::int64_t> context,
                                   std::span<const std::int64_t> ids) {
  DecodeStream stream(tokenizer, std::vector<std::int32_t>(context.begin(), context.end()));
  std::vector<std::string> pieces;
  for (const std::int64_t id : ids) pieces.push_back(stream.add(static_cast<std::int32_t>(id)));
  if (!pieces.empty()) pieces.back() += stream.finish();
  return pieces;
}

JsonText completion_choices(const CompletionRequest& request, const Tokenizer& tokenizer,
                            std::vector<PromptResult> results) {
  JsonText choices = JsonText::array();
  std::int64_t index = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto texts = best_texts(std::move(results[i].texts), request.params);
    for (const Generation& text : texts) {
      JsonText choice = {{"index", index++}};
      choice.update(choice_of(request, request.prompts[i], tokenizer, results[i],
                              texts.front().prompt_tokens, text));
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

CompletionUsage usage_of(const std::vector<PromptResult>& results) {
  CompletionUsage usage;
  for (const PromptResult& result : results) {
    usage.prompt_tokens += std::ssize(result.ids);
    for (const Generation& text : result.texts) {
      usage.completion_tokens += std::ssize(text.ids);
      usage.longest = std::max(usage.longest, std::ssize(result.ids) + std::ssize(text.ids));
    }
  }
  return usage;
}

}  // namespace megatron
