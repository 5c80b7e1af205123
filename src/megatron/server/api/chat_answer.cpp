#include "megatron/server/api/chat_answer.h"

#include <algorithm>
#include <utility>

namespace megatron {

std::int64_t ChatAnswer::num_calls() const {
  return std::ranges::count(parts, OutputKind::call, &ChatPart::kind);
}

std::string ChatAnswer::text_of(OutputKind kind) const {
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

// OpenAI's least log-probability is −9999.
JsonText chat_logprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens,
                       bool as_ids) {
  JsonText list = JsonText::array();
  std::vector<std::int32_t> before;
  const auto json_of = [&](std::int64_t id, double logprob) -> JsonText {
    const TokenName token = token_name(tokenizer, before, id, as_ids);
    JsonText bytes = JsonText::array();
    for (const char c : token.bytes) bytes.push_back(int(static_cast<unsigned char>(c)));
    return {{"token", token.name}, {"logprob", std::max(logprob, -9999.0)}, {"bytes", bytes}};
  };
  for (const SampledToken& token : tokens) {
    JsonText top = JsonText::array();
    for (const TokenLogprob& one : token.best) top.push_back(json_of(one.id, one.logprob));
    JsonText json = json_of(token.id, token.logprob);
    json["top_logprobs"] = std::move(top);
    list.push_back(std::move(json));
    before = {static_cast<std::int32_t>(token.id)};
  }
  return list;
}

}  // namespace megatron
