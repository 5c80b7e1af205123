// OpenAI's responses. Each part of an answer is an item of the output.
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

bool is_empty_text(const OrderedJson& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

void read_message(OrderedJson& messages, const BodyValue& item) {
  std::string role = item["role"]->text();
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant")
    throw UserError({item->place() + ": field 'role'", "'" + role + "' is not known",
                     "use system, developer, user or assistant"});
  const std::string text = content_text(item["content"]);
  // Reasoning, a message and calls are one turn of the assistant.
  if (role == "assistant" && !messages.empty() && messages.back()["role"] == "assistant" &&
      is_empty_text(messages.back()["content"]) && !messages.back().contains("tool_calls"))
    messages.back()["content"] = text;
  else
    messages.push_back({{"role", role}, {"content", text}});
}

void read_item(OrderedJson& messages, const BodyValue& item) {
  const std::string type = item.text_or("type", "message");
  if (type == "message") {
    read_message(messages, item);
  } else if (type == "function_call") {
    append_tool_call(
        messages, tool_call_json(item["call_id"]->text(), item["name"]->text(), item["arguments"]));
  } else if (type == "function_call_output") {
    messages.push_back({{"role", "tool"},
                        {"content", content_text(item["output"])},
                        {"tool_call_id", item["call_id"]->text()}});
  } else if (type == "reasoning") {
    std::string text;
    if (const auto content = item.find("content"))
      for (const BodyValue& part : content->elements()) text += part["text"]->text();
    messages.push_back({{"role", "assistant"}, {"content", ""}});
    if (!text.empty()) messages.back()["reasoning_content"] = text;
  } else {
    throw UserError({item->place() + ": an item of type '" + type + "'", "is not in this version",
                     "use message, function_call, function_call_output or reasoning"});
  }
}

void refuse_state(ChatRequest&, const BodyValue& value) {
  throw UserError(
      {value->name(), "the server keeps no answers", "send the whole conversation in 'input'"});
}

const MemberReaders kReaders{
    {"input",
     [](auto& to, auto& input) {
       if (input.json().is_string())
         to.messages->push_back({{"role", "user"}, {"content", input->text()}});
       else
         for (const BodyValue& item : input.elements()) read_item(*to.messages, item);
     }},
    {"instructions",
     [](auto& to, auto& value) {
       to.messages->insert(to.messages->begin(),
                           OrderedJson{{"role", "system"}, {"content", value->text()}});
     }},
    {"text",
     [](auto& to, auto& text) {
       text->object();
       if (const auto format = text.find("format")) set_output_format(to, *format);
     }},
    {"reasoning",
     [](auto& to, auto& reasoning) {
       reasoning->object();
       if (const auto effort = reasoning.find("effort")) set_effort(to, *effort);
     }},
    {"max_output_tokens", set_max_tokens},
    {"top_logprobs", [](auto& to, auto& value) { (*to.sampling)["logprobs"] = value->integer(); }},
    {"include",
     [](auto& to, auto& list) {
       for (const BodyValue& one : list.elements()) {
         const std::string name = one->text();
         if (name == "message.output_text.logprobs") {
           if (!to.sampling->contains("logprobs")) (*to.sampling)["logprobs"] = 0;
         } else if (name != "reasoning.encrypted_content") {  // reasoning is sent in the open
           throw UserError({one->name(), "'" + name + "' is not in this version", "leave it out"});
         }
       }
     }},
    {"n", refuse_member},
    {"prompt_logprobs", refuse_member},
    {"return_routed_experts", refuse_member},
    {"truncation",
     [](auto&, auto& value) {
       if (value->text() != "disabled")
         throw UserError(
             {value->name(), "the server does not shorten conversations", "use \"disabled\""});
     }},
    {"background",
     [](auto& to, auto& value) {
       if (value->boolean()) refuse_state(to, value);
     }},
    {"previous_response_id", refuse_state},
    {"conversation", refuse_state},
    {"prompt", refuse_state},
};

class ResponseWriter final : public ChatWriter {
 public:
  ResponseWriter(const ServedModel& model, const ChatRequest& request)
      : tokenizer_(*model.tokenizer.tokenizer),
        has_logprobs_(request.request.params.return_log_probs),
        has_tokens_as_ids_(request.request.tokens_as_ids),
        id_(random_id("")) {
    const auto repeated = [&](const char* name, const char* otherwise) {
      const auto found = request.body->find(name);
      const bool is_given = found != request.body->end() && !found->is_null();
      return JsonText::verbatim(is_given ? found->dump() : otherwise);
    };
    const SamplingParams& params = request.request.params;
    head_ = {{"id", "resp_" + id_},
             {"object", "response"},
             {"created_at", unix_time()},
             {"status", "in_progress"},
             {"error", nullptr},
             {"incomplete_details", nullptr},
             {"instructions", repeated("instructions", "null")},
             {"max_output_tokens", repeated("max_output_tokens", "null")},
             {"model", model.name},
             {"output", JsonText::array()},
             {"parallel_tool_calls", request.parallel_tool_calls},
             {"previous_response_id", nullptr},
             {"reasoning", repeated("reasoning", R"({"effort":null,"summary":null})")},
             {"store", false},
             {"temperature", params.temperature},
             {"text", repeated("text", R"({"format":{"type":"text"}})")},
             {"tool_choice", repeated("tool_choice", R"("auto")")},
             {"tools", repeated("tools", "[]")},
             {"top_p", params.top_p > 0 ? params.top_p : 1.0},
             {"truncation", "disabled"},
             {"usage", nullptr},
             {"user", repeated("user", "null")},
             {"metadata", repeated("metadata", "{}")}};
  }

  std::string begin() override {
    std::string events = event("response.created", {{"response", head_}});
    events += event("response.in_progress", {{"response", head_}});
    return events;
  }

  std::string begin_part(const ChatAnswer& answer) override {
    const ChatPart& part = answer.parts.back();
    JsonText item = item_of(answer, answer.parts.size() - 1, "in_progress");
    if (part.kind != Kind::call) item["content"] = JsonText::array();
    std::string events = event("response.output_item.added",
                               {{"output_index", answer.parts.size() - 1}, {"item", item}});
    if (part.kind != Kind::call)
      events +=
          part_event(answer, "response.content_part.added", {{"part", content_of({part.kind})}});
    return events;
  }

  std::string add(const ChatAnswer& answer, const ChatDelta& delta) override {
    switch (answer.parts.back().kind) {
      case Kind::reasoning:
        return part_event(answer, "response.reasoning_text.delta", {{"delta", delta.text}});
      case Kind::call:
        return part_event(answer, "response.function_call_arguments.delta",
                          {{"delta", delta.text}});
      case Kind::content:
        break;
    }
    return part_event(answer, "response.output_text.delta",
                      {{"delta", delta.text}, {"logprobs", logprobs_of(delta.tokens)}});
  }

  std::string end_part(const ChatAnswer& answer) override {
    const ChatPart& part = answer.parts.back();
    std::string events;
    if (part.kind == Kind::call) {
      events = part_event(answer, "response.function_call_arguments.done",
                          {{"name", part.name}, {"arguments", part.text}});
    } else {
      JsonText text = {{"text", part.text}};
      if (part.kind == Kind::content) text["logprobs"] = logprobs_of(part.tokens);
      events = part_event(
          answer,
          part.kind == Kind::content ? "response.output_text.done" : "response.reasoning_text.done",
          text);
      events += part_event(answer, "response.content_part.done", {{"part", content_of(part)}});
    }
    const std::size_t index = answer.parts.size() - 1;
    events += event("response.output_item.done",
                    {{"output_index", index}, {"item", item_of(answer, index, status_of(answer))}});
    return events;
  }

  std::string end(const std::vector<ChatAnswer>& answers, const CompletionUsage& usage) override {
    const std::string status = status_of(answers.front());
    return event("response." + status, {{"response", whole(answers.front(), usage)}});
  }

  std::string body(const std::vector<ChatAnswer>& answers, const CompletionUsage& usage) override {
    return whole(answers.front(), usage).dump();
  }

  std::string error_event(const ErrorReply& error) override {
    JsonText failed = head_;
    failed["status"] = "failed";
    failed["error"] = {{"code", "server_error"}, {"message", error.message}};
    return event("response.failed", {{"response", failed}});
  }

 private:
  static std::string status_of(const ChatAnswer& answer) {
    return !answer.finish || *answer.finish == FinishReason::stop ? "completed" : "incomplete";
  }

  JsonText logprobs_of(const std::vector<SampledToken>& tokens) const {
    return has_logprobs_ ? chat_logprobs(tokenizer_, tokens, has_tokens_as_ids_)
                         : JsonText::array();
  }

  std::string item_id(const ChatAnswer& answer, std::size_t index) const {
    const Kind kind = answer.parts[index].kind;
    const char* prefix = kind == Kind::content ? "msg_" : kind == Kind::call ? "fc_" : "rs_";
    return prefix + id_ + std::to_string(index);
  }

  JsonText content_of(const ChatPart& part) const {
    if (part.kind == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", part.text}};
    return {{"type", "output_text"},
            {"text", part.text},
            {"annotations", JsonText::array()},
            {"logprobs", logprobs_of(part.tokens)}};
  }

  JsonText item_of(const ChatAnswer& answer, std::size_t index, const std::string& status) const {
    const ChatPart& part = answer.parts[index];
    JsonText item = {{"id", item_id(answer, index)}};
    if (part.kind == Kind::call) {
      item.update({{"type", "function_call"},
                   {"call_id", part.id},
                   {"name", part.name},
                   {"arguments", part.text}});
    } else if (part.kind == Kind::content) {
      item.update({{"type", "message"}, {"role", "assistant"}});
    } else {
      item.update({{"type", "reasoning"}, {"summary", JsonText::array()}});
    }
    if (part.kind != Kind::call) item["content"] = JsonText::array({content_of(part)});
    item["status"] = status;
    return item;
  }

  JsonText whole(const ChatAnswer& answer, const CompletionUsage& usage) const {
    JsonText json = head_;
    json["status"] = status_of(answer);
    if (status_of(answer) != "completed")
      json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    JsonText output = JsonText::array();
    for (std::size_t i = 0; i < answer.parts.size(); ++i) {
      const bool is_last = i + 1 == answer.parts.size();
      output.push_back(item_of(answer, i, is_last ? status_of(answer) : "completed"));
    }
    json["output"] = std::move(output);
    json["usage"] = {{"input_tokens", usage.prompt_tokens},
                     {"input_tokens_details",
                      {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
                     {"output_tokens", usage.completion_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                     {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    return json;
  }

  std::string event(const std::string& type, const JsonText& members) {
    JsonText json = {{"type", type}, {"sequence_number", num_events_++}};
    json.update(members);
    return stream_event(json, type);
  }

  /// Returns an event of the last part.
  std::string part_event(const ChatAnswer& answer, const std::string& type,
                         const JsonText& members) {
    const std::size_t index = answer.parts.size() - 1;
    JsonText json = {{"item_id", item_id(answer, index)}, {"output_index", index}};
    if (answer.parts.back().kind != Kind::call) json["content_index"] = 0;
    json.update(members);
    return event(type, json);
  }

  const Tokenizer& tokenizer_;
  const bool has_logprobs_, has_tokens_as_ids_;
  const std::string id_;
  JsonText head_;  ///< the response before it has an output
  std::int64_t num_events_ = 0;
};

ChatRequest read_response_request(const std::string& body) {
  ChatRequest read = read_chat_request(body, kReaders);
  if (!read.body->contains("input") || (*read.body)["input"].empty() || read.messages->empty())
    throw UserError({"request body: field 'input' is missing", "", ""});
  return read;
}

}  // namespace

const ChatApi kResponsesApi{read_response_request, new_chat_writer<ResponseWriter>, error_json};

}  // namespace megatron
