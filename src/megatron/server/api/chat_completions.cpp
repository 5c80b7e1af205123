// OpenAI's chat completions.
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/chat_apis.h"
#include "megatron/server/api/error_reply.h"
#include "megatron/server/api/served_model.h"

namespace megatron {
namespace {

using Kind = OutputKind;

OrderedJson message_of(const BodyValue& message) {
  std::string role = message["role"]->text();
  if (role == "developer") role = "system";  // which all templates know
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    throw UserError({message->place() + ": field 'role'", "'" + role + "' is not known",
                     "use system, developer, user, assistant or tool"});
  OrderedJson made{{"role", role}, {"content", ""}};
  if (const auto content = message.find("content"))
    made["content"] = content_text(*content);
  else if (role != "assistant")
    throw UserError({message->place() + ": field 'content' is missing", "", ""});
  for (const char* name : {"name", "tool_call_id"})
    if (message.find(name)) made[name] = message.text_or(name);
  const std::string reasoning = message.text_or("reasoning_content", message.text_or("reasoning"));
  if (!reasoning.empty()) made["reasoning_content"] = reasoning;
  if (const auto calls = message.find("tool_calls"))
    for (const BodyValue& call : calls->elements()) {
      const BodyValue function = call["function"];
      made["tool_calls"].push_back(
          tool_call_json(call.text_or("id"), function["name"]->text(), function["arguments"]));
    }
  return made;
}

const MemberReaders kReaders{
    {"messages",
     [](auto& to, auto& list) {
       for (const BodyValue& message : list.elements()) to.messages->push_back(message_of(message));
       if (to.messages->empty()) throw UserError({list->name(), "an empty list", "give a message"});
     }},
    {"logprobs",
     [](auto& to, auto& value) {
       if (value->boolean() && !to.sampling->contains("logprobs")) (*to.sampling)["logprobs"] = 0;
     }},
    {"top_logprobs", [](auto& to, auto& value) { (*to.sampling)["logprobs"] = value->integer(); }},
    {"max_completion_tokens", set_max_tokens},
    {"modalities",
     [](auto&, auto& list) {
       for (const BodyValue& one : list.elements())
         if (one->text() != "text")
           throw UserError({list->name(), "the model writes text alone", "leave it out"});
     }},
};

/// Returns the usage with the tokens of reasoning.
JsonText chat_usage(const CompletionUsage& usage) {
  JsonText json = usage_json(usage);
  json["completion_tokens_details"] = {{"reasoning_tokens", usage.reasoning_tokens}};
  return json;
}

class ChatCompletionWriter final : public ChatWriter {
 public:
  ChatCompletionWriter(const ServedModel& model, const ChatRequest& request)
      : tokenizer_(*model.tokenizer.tokenizer),
        prompt_(request.prompt_ids),
        prompt_best_(request.request.params.prompt_best),
        has_logprobs_(request.request.params.return_log_probs),
        has_tokens_as_ids_(request.request.tokens_as_ids),
        has_ids_(request.return_token_ids),
        has_usage_(request.include_usage),
        has_experts_(request.request.params.return_routed_experts),
        is_named_(request.tool_choice == ToolChoice::named),
        head_{{"id", request.id.empty() ? random_id("chatcmpl-") : "chatcmpl-" + request.id},
              {"object", "chat.completion.chunk"},
              {"created", unix_time()},
              {"model", model.name}},
        has_begun_(static_cast<std::size_t>(request.request.params.n)) {}

  std::string begin_part(const ChatAnswer& answer) override {
    std::string events = begin_answer(answer);
    const ChatPart& part = answer.parts.back();
    if (part.kind != Kind::call) return events;
    JsonText call = {{"index", answer.num_calls() - 1}, {"id", part.id}, {"type", "function"}};
    call["function"] = {{"name", part.name}, {"arguments", ""}};
    return events + chunk(answer, {{"tool_calls", JsonText::array({call})}}, {});
  }

  std::string add(const ChatAnswer& answer, const ChatDelta& delta) override {
    switch (answer.parts.back().kind) {
      case Kind::reasoning:
        return chunk(answer, {{"reasoning_content", delta.text}}, delta);
      case Kind::content:
        return chunk(answer, {{"content", delta.text}}, delta);
      case Kind::call:
        break;
    }
    JsonText call = {{"index", answer.num_calls() - 1}};
    call["function"] = {{"arguments", delta.text}};
    return chunk(answer, {{"tool_calls", JsonText::array({call})}}, delta);
  }

  std::string end_answer(const ChatAnswer& answer, const ChatDelta& rest) override {
    return begin_answer(answer) + chunk(answer, JsonText::object(), rest, Place::end);
  }

  std::string end(const std::vector<ChatAnswer>&, const CompletionUsage& usage) override {
    std::string events;
    if (has_usage_) {
      JsonText last = head_;
      last["choices"] = JsonText::array();
      last["usage"] = chat_usage(usage);
      events = stream_event(last);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string body(const std::vector<ChatAnswer>& answers, const CompletionUsage& usage) override {
    JsonText choices = JsonText::array();
    for (const ChatAnswer& answer : answers) choices.push_back(choice_of(answer));
    JsonText json = head_;
    json["object"] = "chat.completion";
    json["choices"] = std::move(choices);
    json["usage"] = chat_usage(usage);
    if (has_ids_) json["prompt_token_ids"] = prompt_;
    if (prompt_best_ >= 0)
      json["prompt_logprobs"] = prompt_logprobs_json(tokenizer_, prompt_.front(),
                                                     answers.front().prompt_tokens, prompt_best_);
    return json.dump();
  }

  std::string error_event(const ErrorReply& error) override {
    return stream_event(error_json(error)) + "data: [DONE]\n\n";
  }

 private:
  enum class Place { begin, middle, end };  ///< of a chunk in its answer

  JsonText finish_of(const ChatAnswer& answer) const {
    if (!answer.finish) return nullptr;
    if (*answer.finish != FinishReason::stop) return finish_reason_name(FinishReason::length);
    return answer.num_calls() > 0 && !is_named_ ? "tool_calls" : "stop";  // as OpenAI's do
  }

  JsonText logprobs_of(const std::vector<SampledToken>& tokens) const {
    return {{"content", chat_logprobs(tokenizer_, tokens, has_tokens_as_ids_)},
            {"refusal", nullptr}};
  }

  JsonText choice_of(const ChatAnswer& answer) const {
    const std::string text = answer.text_of(Kind::content),
                      reasoning = answer.text_of(Kind::reasoning);
    JsonText message = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    std::vector<SampledToken> tokens;
    for (const ChatPart& part : answer.parts) {
      if (part.kind == Kind::content)
        tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      if (part.kind != Kind::call) continue;
      if (text.empty()) message["content"] = nullptr;
      JsonText call = {{"id", part.id}, {"type", "function"}};
      call["function"] = {{"name", part.name}, {"arguments", part.text}};
      message["tool_calls"].push_back(std::move(call));
    }
    if (answer.stop_token && answer.is_in_text()) tokens.push_back(*answer.stop_token);
    JsonText choice = {{"index", answer.index},
                       {"message", std::move(message)},
                       {"logprobs", nullptr},
                       {"finish_reason", finish_of(answer)},
                       {"stop_reason", answer.stop_reason}};
    if (has_logprobs_) choice["logprobs"] = logprobs_of(tokens);
    if (has_ids_) choice["token_ids"] = answer.ids;
    if (has_experts_) choice["routed_experts"] = answer.routed_experts;
    return choice;
  }

  /// Returns the chunk that begins an answer, once.
  std::string begin_answer(const ChatAnswer& answer) {
    std::vector<bool>::reference has_begun = has_begun_[static_cast<std::size_t>(answer.index)];
    if (has_begun) return "";
    has_begun = true;
    return chunk(answer, {{"role", "assistant"}, {"content", ""}}, {}, Place::begin);
  }

  /// Only the last chunk has the reasons of the end. Those that are known before it is written
  /// could be taken for it: a text that was held back may come between.
  std::string chunk(const ChatAnswer& answer, JsonText delta, const ChatDelta& added,
                    Place place = Place::middle) const {
    const bool ends = place == Place::end;
    JsonText choice = {{"index", answer.index},
                       {"delta", std::move(delta)},
                       {"logprobs", nullptr},
                       {"finish_reason", ends ? finish_of(answer) : JsonText()},
                       {"stop_reason", ends ? answer.stop_reason : JsonText()}};
    if (has_logprobs_ && answer.is_in_text() && !added.tokens.empty())
      choice["logprobs"] = logprobs_of(added.tokens);
    if (has_ids_) choice["token_ids"] = added.ids;
    JsonText json = head_;
    if (has_ids_ && place == Place::begin) json["prompt_token_ids"] = prompt_;
    json["choices"] = JsonText::array({std::move(choice)});
    if (has_usage_) json["usage"] = nullptr;
    return stream_event(json);
  }

  const Tokenizer& tokenizer_;
  const std::vector<std::int64_t> prompt_;
  const std::int64_t prompt_best_;
  const bool has_logprobs_, has_tokens_as_ids_, has_ids_, has_usage_, has_experts_;
  const bool is_named_;  ///< the client has named the tool that is called
  const JsonText head_;  ///< of chunks
  std::vector<bool> has_begun_;
};

ChatRequest read_chat_completion(const std::string& body) {
  ChatRequest read = read_chat_request(body, kReaders);
  if (read.messages->empty())
    throw UserError({"request body: field 'messages' is missing", "", ""});
  if (read.request.stream && read.request.params.return_routed_experts)
    throw UserError({"request body: field 'return_routed_experts'", "has no meaning with 'stream'",
                     "leave one of them out"});
  return read;
}

}  // namespace

const ChatApi kChatCompletionsApi{read_chat_completion, new_chat_writer<ChatCompletionWriter>,
                                  error_json};

}  // namespace megatron
