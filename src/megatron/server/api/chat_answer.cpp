#include "megatron/server/api/chat_answer.h"

#include <algorithm>
#include <span>

#include "megatron/tokenizers/decode_stream.h"

namespace megatron {
namespace {

/// Returns {"token", "logprob", "bytes"}. OpenAI's least log-probability is −9999.
JsonText token_json(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                    std::int64_t id, double logprob) {
  DecodeStream stream(tokenizer, before, SpecialTokens::keep);
  std::string text = stream.add(static_cast<std::int32_t>(id));
  text += stream.finish();
  JsonText bytes = JsonText::array();
  for (const char c : text) bytes.push_back(int(static_cast<unsigned char>(c)));
  return {{"token", text}, {"logprob", std::max(logprob, -9999.0)}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::int64_t ChatAnswer::num_calls() const {
  return std::ranges::count(parts, ChatPart::Kind::call, &ChatPart::kind);
}

std::string ChatAnswer::text_of(ChatPart::Kind kind) const {
  std::string text;
  for (const ChatPart& part : parts)
    if (part.kind == kind) text += part.text;
  return text;
}

std::string stream_event(const JsonText& data, std::string_view name) {
  std::string event;
  if (!name.empty()) event.append("event: ").append(name).append("\n");
  return event.append("data: ").append(data.dump()).append("\n\n");
}

JsonText chat_logprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens) {
  JsonText list = JsonText::array();
  std::vector<std::int32_t> before;
  for (const SampledToken& token : tokens) {
    JsonText top = JsonText::array();
    for (const TokenLogprob& one : token.best)
      top.push_back(token_json(tokenizer, before, one.id, one.logprob));
    JsonText json = token_json(tokenizer, before, token.id, token.logprob);
    json["top_logprobs"] = std::move(top);
    list.push_back(std::move(json));
    before = {static_cast<std::int32_t>(token.id)};
  }
  return list;
}

}  // namespace megatron
