#include "megatron/server/api/tokenize.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/server/api/served_model.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

JsonCursor read_body(const HttpRequest& request) {
  return {parse_json(request.body, "request body"), "request body"};
}

bool flag(const JsonCursor& body, const std::string& name, bool otherwise) {
  const std::optional<JsonCursor> value = body.find(name);
  return value && !(*value)->is_null() ? value->boolean() : otherwise;
}

JsonText tokenize(const ServedModel& model, const HttpRequest& request) {
  const JsonCursor body = read_body(request);
  const Tokenizer& tokenizer = *model.tokenizer.tokenizer;
  const std::string prompt = body["prompt"].text();
  const std::vector<std::int32_t> ids = flag(body, "add_special_tokens", true)
                                            ? tokenizer.encode(prompt)
                                            : tokenizer.encode_fragment(prompt);
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
  for (const JsonCursor& value : read_body(request)["tokens"].elements()) {
    const std::int64_t id = value.integer();
    if (id < 0 || id >= model.vocab_size)
      throw UserError({value.name(), std::to_string(id),
                       "the vocabulary has the ids 0 to " + std::to_string(model.vocab_size - 1)});
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return {{"prompt", model.tokenizer.tokenizer->decode(ids, SpecialTokens::keep)}};
}

JsonText tokenizer_info(const ServedModel& model, const std::string& chat_template) {
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
          {"chat_template", chat_template.empty() ? JsonText() : JsonText(chat_template)}};
}

}  // namespace

std::vector<ApiRoute> tokenize_routes(const ServedModel& model, const std::string& chat_template) {
  return {{"POST", "/tokenize",
           json_handler([&model](const HttpRequest& request) { return tokenize(model, request); })},
          {"POST", "/detokenize", json_handler([&model](const HttpRequest& request) {
             return detokenize(model, request);
           })},
          {"GET", "/tokenizer_info", json_handler([&model, chat_template](const HttpRequest&) {
             return tokenizer_info(model, chat_template);
           })}};
}

}  // namespace megatron
