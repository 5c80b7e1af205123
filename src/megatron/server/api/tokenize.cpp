#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/chat_apis.h"
#include "megatron/server/api/json_handler.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

bool flag(const JsonCursor& body, const std::string& name, bool otherwise) {
  const std::optional<JsonCursor> value = body.find_given(name);
  return value ? value->boolean() : otherwise;
}

/// Returns the ids of a prompt, or of messages as the chat template renders them.
std::vector<std::int32_t> tokenized_ids(const ServedModel& model, const JsonCursor& body,
                                        const std::string& text) {
  if (!body.find_given("messages")) {
    const Tokenizer& tokenizer = *model.tokenizer.tokenizer;
    const std::string prompt = body["prompt"].text();
    if (!flag(body, "add_special_tokens", true)) return tokenizer.encode_fragment(prompt);
    std::vector<std::int32_t> ids = tokenizer.encode(prompt);
    model.tokenizer.end_encoded(ids);
    return ids;
  }
  OrderedJson chat = OrderedJson::parse(text);  // templates show the client's order of keys
  chat.erase("return_token_strs");
  ChatRequest request = kChatCompletionsApi.read(chat.dump());
  render_prompt(model, request);
  return {request.prompt_ids.begin(), request.prompt_ids.end()};
}

JsonText tokenize(const ServedModel& model, const HttpRequest& request) {
  const JsonCursor body = body_of(request);
  const Tokenizer& tokenizer = *model.tokenizer.tokenizer;
  const std::vector<std::int32_t> ids = tokenized_ids(model, body, request.body);
  JsonText texts;
  if (flag(body, "return_token_strs", false)) {
    texts = JsonText::array();
    for (const std::int32_t id : ids) texts.push_back(tokenizer.token(id));
  }
  return {{"count", ids.size()},
          {"max_model_len", model.max_model_len},
          {"tokens", ids},
          {"token_strs", texts}};
}

JsonText detokenize(const ServedModel& model, const HttpRequest& request) {
  std::vector<std::int32_t> ids;
  for (const JsonCursor& value : body_of(request)["tokens"].elements()) {
    const std::int64_t id = value.integer();
    if (id < 0 || id >= model.vocab_size)
      throw UserError({value.name(), std::to_string(id),
                       "the vocabulary has the ids 0 to " + std::to_string(model.vocab_size - 1)});
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return {{"prompt", model.tokenizer.tokenizer->decode(ids, SpecialTokens::keep)}};
}

JsonText tokenizer_info(const ServedModel& model, const HttpRequest& /*request*/) {
  const Tokenizer& tokenizer = *model.tokenizer.tokenizer;
  const auto token = [&](std::int32_t id) -> JsonText {
    if (id < 0) return nullptr;
    return tokenizer.token(id);
  };
  return {{"tokenizer_class", tokenizer.name()},
          {"vocab_size", tokenizer.vocab_size()},
          {"model_max_length", model.max_model_len},
          {"bos_token", token(tokenizer.bos())},
          {"eos_token", token(tokenizer.eod())},
          {"pad_token", token(tokenizer.pad())},
          {"unk_token", token(tokenizer.unk())},
          {"chat_template", model.chat == nullptr ? JsonText() : JsonText(model.chat->source)}};
}

}  // namespace

std::vector<ApiRoute> tokenize_routes(const ServedModel& model) {
  using Body = JsonText (*)(const ServedModel&, const HttpRequest&);
  const auto handler = [&model](Body body) {
    return json_handler(
        [&model, body](const HttpRequest& request) { return body(model, request); });
  };
  return {{"POST", "/tokenize", handler(tokenize)},
          {"POST", "/detokenize", handler(detokenize)},
          {"GET", "/tokenizer_info", handler(tokenizer_info)}};
}

}  // namespace megatron
