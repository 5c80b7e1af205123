#include "megatron/inference/completions/completion_response.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "megatron/base/format.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

std::vector<std::int32_t> short_ids(std::span<const std::int64_t> ids) {
  return {ids.begin(), ids.end()};
}

/// Returns the ids before the texts of a prompt.
std::span<const std::int64_t> context_of(const CompletionRequest& request,
                                         std::span<const std::int64_t> prompt_ids) {
  return prompt_ids.first(request.answers ? 0 : prompt_ids.size());
}

/// Returns the text that ids add behind others.
std::string text_behind(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                        std::span<const std::int64_t> ids, SpecialTokens special) {
  DecodeStream stream(tokenizer, before, special);
  std::string text;
  for (const std::int64_t id : ids) text += stream.add(static_cast<std::int32_t>(id));
  return text += stream.finish();
}

SpecialTokens special_of(const CompletionRequest& request) {
  return request.params.skip_special_tokens ? SpecialTokens::skip : SpecialTokens::keep;
}

}  // namespace

TokenName token_name(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                     std::int64_t id, bool as_id) {
  const auto bytes_of = [&](std::int32_t one) {
    return tokenizer.is_special(one) ? tokenizer.token(one) : tokenizer.token_bytes(one);
  };
  std::string bytes = bytes_of(static_cast<std::int32_t>(id));
  const bool is_text = !replace_invalid_utf8(bytes),
             follows_part = !before.empty() && replace_invalid_utf8(bytes_of(before.back()));
  if (bytes.empty() || (is_text && !follows_part))  // as decoders write it in this place
    bytes = text_behind(tokenizer, before, {&id, 1}, SpecialTokens::keep);
  if (as_id) return {"token_id:" + std::to_string(id), bytes};
  if (is_text) return {bytes, bytes};
  std::string name = "bytes:";
  for (const char byte : bytes)
    name += format("\\x%02x", unsigned{static_cast<unsigned char>(byte)});
  return {name, bytes};
}

JsonText stop_reason(const Generation& text, const SamplingParams& params) {
  if (!text.stop_string.empty()) return text.stop_string;
  if (!text.stop_token || std::ranges::count(params.stop_token_ids, text.stop_token->id) == 0)
    return nullptr;
  return text.stop_token->id;
}

JsonText prompt_logprobs_json(const Tokenizer& tokenizer, std::int64_t first_id,
                              const std::vector<SampledToken>& tokens, std::int64_t num_best) {
  JsonText list = JsonText::array();
  list.push_back(nullptr);
  std::vector<std::int32_t> before{static_cast<std::int32_t>(first_id)};
  for (const SampledToken& token : tokens) {
    JsonText one;
    const auto add = [&](std::int64_t id, double logprob, std::int64_t rank) {
      one[std::to_string(id)] = {{"logprob", logprob},
                                 {"rank", rank},
                                 {"decoded_token", token_name(tokenizer, before, id).name}};
    };
    add(token.id, token.logprob, token.rank);
    for (std::int64_t i = 0; i < std::min(num_best, std::ssize(token.best)); ++i) {
      const TokenLogprob& best = token.best[static_cast<std::size_t>(i)];
      if (best.id != token.id) add(best.id, best.logprob, i + 1);
    }
    list.push_back(std::move(one));
    before = {static_cast<std::int32_t>(token.id)};
  }
  return list;
}

CompletionChoice::CompletionChoice(const CompletionRequest& request, const Tokenizer& tokenizer,
                                   std::size_t prompt, const std::vector<std::int64_t>& prompt_ids)
    : request_(request),
      tokenizer_(tokenizer),
      prompt_(prompt),
      prompt_ids_(prompt_ids),
      pieces_(
          tokenizer,
          request.echo ? std::vector<std::int32_t>() : short_ids(context_of(request, prompt_ids)),
          special_of(request)) {
  if (!request.echo)
    before_ = short_ids(context_of(request, prompt_ids).last(request.answers ? 0 : 1));
  else if (const auto* given = std::get_if<std::string>(&request.prompts[prompt]))
    echoed_ = *given, num_echoed_ = prompt_ids.size();
}

JsonText CompletionChoice::add(std::string text, std::vector<SampledToken> tokens,
                               const std::vector<SampledToken>& prompt_tokens,
                               const Generation* finished) {
  const bool is_first = !std::exchange(has_begun_, true);
  if (finished != nullptr && finished->stop_token) tokens.push_back(*finished->stop_token);
  JsonText ids = JsonText::array();
  for (const SampledToken& token : tokens) ids.push_back(token.id);
  if (is_first && request_.echo) {
    const auto* given = std::get_if<std::string>(&request_.prompts[prompt_]);
    text.insert(0, given != nullptr
                       ? *given
                       : tokenizer_.decode(short_ids(prompt_ids_), special_of(request_)));
    tokens.insert(tokens.begin(), prompt_tokens.begin(), prompt_tokens.end());
    tokens.insert(tokens.begin(), {.id = prompt_ids_.front(), .logprob = std::nan("")});
  }
  JsonText choice = {
      {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}, {"stop_reason", nullptr}};
  if (request_.params.reports_logprobs()) choice["logprobs"] = logprobs_of(tokens);
  if (finished != nullptr) {
    const bool has_stopped = finished->finish_reason == FinishReason::stop;
    choice["finish_reason"] =
        finish_reason_name(has_stopped ? FinishReason::stop : FinishReason::length);
    choice["stop_reason"] = stop_reason(*finished, request_.params);
  }
  if (is_first && request_.params.prompt_best >= 0)
    choice["prompt_logprobs"] = prompt_logprobs_json(tokenizer_, prompt_ids_.front(), prompt_tokens,
                                                     request_.params.prompt_best);
  if (!request_.return_token_ids) return choice;
  if (is_first) choice["prompt_token_ids"] = prompt_ids_;
  choice["token_ids"] = std::move(ids);
  return choice;
}

/// A log-probability of NaN is unknown.
JsonText CompletionChoice::logprobs_of(const std::vector<SampledToken>& tokens) {
  JsonText names = JsonText::array(), logprobs = JsonText::array(), top = JsonText::array(),
           offsets = JsonText::array();
  const auto name_of = [&](std::int64_t id) {
    return token_name(tokenizer_, before_, id, request_.tokens_as_ids).name;
  };
  for (const SampledToken& token : tokens) {
    const std::string name = name_of(token.id);
    names.push_back(name);
    logprobs.push_back(token.logprob);
    offsets.push_back(offset_);
    const auto id = static_cast<std::int32_t>(token.id);
    std::string piece = pieces_.add(id);
    if (num_echoed_ > 0) {  // the special tokens of a given text are those that it has written
      --num_echoed_;
      const std::string special = tokenizer_.is_special(id) ? tokenizer_.token(id) : "";
      if (!special.empty()) piece = echoed_.starts_with(special) ? special : "";
      echoed_.remove_prefix(std::min(piece.size(), echoed_.size()));
    }
    offset_ += count_characters(replace_invalid_utf8(piece).value_or(piece));
    JsonText best;
    if (!std::isnan(token.logprob)) {
      std::set<std::string> seen;
      const auto num_best = static_cast<std::size_t>(request_.params.logprobs);
      for (std::size_t i = 0; i < std::min(num_best, token.best.size()); ++i) {
        const std::string key = name_of(token.best[i].id);
        if (seen.insert(key).second) best[key] = token.best[i].logprob;  // the most likely
      }
      if (!seen.contains(name)) best[name] = token.logprob;
    }
    top.push_back(std::move(best));
    before_ = {id};
  }
  return {{"tokens", names},
          {"token_logprobs", logprobs},
          {"top_logprobs", top},
          {"text_offset", offsets}};
}

std::vector<std::string> token_texts(const Tokenizer& tokenizer,
                                     std::span<const std::int64_t> context,
                                     std::span<const std::int64_t> ids) {
  DecodeStream stream(tokenizer, short_ids(context));
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
    const std::vector<std::int64_t>& ids = results[i].ids;
    const auto texts = best_texts(std::move(results[i].texts), request.params);
    for (const Generation& generation : texts) {
      std::string text = text_behind(tokenizer, short_ids(context_of(request, ids)), generation.ids,
                                     special_of(request));
      text.resize(text.size() - std::min(text.size(), generation.num_cut_bytes));
      std::vector<SampledToken> tokens = generation.tokens;
      if (tokens.empty())
        for (const std::int64_t id : generation.ids) tokens.push_back({.id = id});
      JsonText choice = {{"index", index++}};
      choice.update(
          CompletionChoice(request, tokenizer, i, ids)
              .add(std::move(text), std::move(tokens), texts.front().prompt_tokens, &generation));
      if (request.params.return_routed_experts)
        choice["routed_experts"] = generation.routed_experts;
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

CompletionUsage usage_of(const std::vector<PromptResult>& results, bool answers) {
  CompletionUsage usage;
  for (const PromptResult& result : results) {
    usage.prompt_tokens += std::ssize(result.ids);
    if (!result.texts.empty()) usage.cached_tokens += result.texts.front().num_cached;
    for (const Generation& text : result.texts) {
      usage.completion_tokens += text.num_sampled();
      const std::int64_t before = std::ssize(result.ids), after = std::ssize(text.ids);
      usage.longest = std::max(usage.longest, answers ? std::max(before, after) : before + after);
    }
  }
  return usage;
}

JsonText usage_json(const CompletionUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

}  // namespace megatron
