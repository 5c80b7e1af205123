// Anthropic's messages. Each part of an answer is a content block.
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/server/api/chat_apis.h"
#include "megatron/server/api/error_reply.h"
#include "megatron/server/api/served_model.h"

namespace megatron {
namespace {

using Kind = OutputKind;

/// Appends a block of a message of `role`. A result of a tool is a message of its own.
void read_block(OrderedJson& messages, const BodyValue& block, const std::string& role) {
  const std::string type = block["type"]->text();
  const auto last = [&]() -> OrderedJson& {
    if (messages.empty() || messages.back()["role"] != role)
      messages.push_back({{"role", role}, {"content", ""}});
    return messages.back();
  };
  if (type == "text") {
    std::string& content = last()["content"].get_ref<std::string&>();
    if (!content.empty()) content += '\n';
    content += block["text"]->text();
  } else if (type == "tool_result" && role == "user") {
    const auto content = block.find("content");
    messages.push_back({{"role", "tool"},
                        {"content", content ? content_text(*content) : ""},
                        {"tool_call_id", block["tool_use_id"]->text()}});
  } else if (type == "tool_use" && role == "assistant") {
    append_tool_call(messages,
                     tool_call_json(block["id"]->text(), block["name"]->text(), block["input"]));
  } else if (type == "thinking" && role == "assistant") {
    last()["reasoning_content"] = block["thinking"]->text();
  } else if (type != "redacted_thinking") {
    throw UserError({block->place() + ": a block of type '" + type + "'",
                     "is not in this version of messages of role " + role, "leave it out"});
  }
}

void read_message(OrderedJson& messages, const BodyValue& message) {
  const std::string role = message["role"]->text();
  if (role != "user" && role != "assistant" && role != "system")
    throw UserError({message->place() + ": field 'role'", "'" + role + "' is not known",
                     "use user or assistant"});
  const BodyValue content = message["content"];
  if (content.json().is_string())
    messages.push_back({{"role", role}, {"content", content->text()}});
  else
    for (const BodyValue& block : content.elements()) read_block(messages, block, role);
}

const MemberReaders kReaders{
    {"messages",
     [](auto& to, auto& list) {
       for (const BodyValue& message : list.elements()) read_message(*to.messages, message);
     }},
    {"system",  // is read after the messages
     [](auto& to, auto& value) {
       to.messages->insert(to.messages->begin(),
                           OrderedJson{{"role", "system"}, {"content", content_text(value)}});
     }},
    {"tools",
     [](auto& to, auto& list) {
       for (const BodyValue& tool : list.elements()) {
         if (const std::string type = tool.text_or("type", "custom"); type != "custom")
           throw UserError({tool->place() + ": a tool of type '" + type + "'",
                            "is not in this version", "give tools with an input_schema"});
         to.tools->push_back(tool_json(tool, tool["input_schema"].ordered()));
       }
     }},
    {"output_format", set_output_format},
    {"output_config",
     [](auto& to, auto& config) {
       config->object();
       if (const auto format = config.find("format")) set_output_format(to, *format);
       if (const auto effort = config.find("effort")) set_effort(to, *effort);
     }},
    {"stop_sequences", [](auto& to, auto& list) { (*to.sampling)["stop"] = list.ordered(); }},
    {"n", refuse_member},
    {"prompt_logprobs", refuse_member},
    {"return_routed_experts", refuse_member},
};

class AnthropicWriter final : public ChatWriter {
 public:
  AnthropicWriter(const ServedModel& model, const ChatRequest& request)
      : head_{{"id", random_id("msg_")},      {"type", "message"},
              {"role", "assistant"},          {"model", model.name},
              {"content", JsonText::array()}, {"stop_reason", nullptr},
              {"stop_sequence", nullptr},     {"usage", nullptr}},
        num_prompt_tokens_(std::ssize(request.prompt_ids)) {}

  std::string begin() override {
    JsonText message = head_;
    message["usage"] = usage_json({.prompt_tokens = num_prompt_tokens_});
    return event("message_start", {{"message", std::move(message)}});
  }

  std::string begin_part(const ChatAnswer& answer) override {
    ChatPart empty = answer.parts.back();
    empty.text.clear();
    return block_event(answer, "content_block_start", {{"content_block", block_of(empty)}});
  }

  std::string add(const ChatAnswer& answer, const ChatDelta& delta) override {
    JsonText json;
    switch (answer.parts.back().kind) {
      case Kind::content:
        json = {{"type", "text_delta"}, {"text", delta.text}};
        break;
      case Kind::reasoning:
        json = {{"type", "thinking_delta"}, {"thinking", delta.text}};
        break;
      case Kind::call:
        json = {{"type", "input_json_delta"}, {"partial_json", delta.text}};
        break;
    }
    return block_event(answer, "content_block_delta", {{"delta", std::move(json)}});
  }

  std::string end_part(const ChatAnswer& answer) override {
    std::string events;
    if (answer.parts.back().kind == Kind::reasoning) {
      const JsonText signature = {{"type", "signature_delta"}, {"signature", ""}};
      events = block_event(answer, "content_block_delta", {{"delta", signature}});
    }
    return events + block_event(answer, "content_block_stop", JsonText::object());
  }

  std::string end(const std::vector<ChatAnswer>& answers, const CompletionUsage& usage) override {
    return event("message_delta",
                 {{"delta", stop_of(answers.front())}, {"usage", usage_json(usage)}}) +
           event("message_stop", JsonText::object());
  }

  std::string body(const std::vector<ChatAnswer>& answers, const CompletionUsage& usage) override {
    JsonText json = head_;
    for (const ChatPart& part : answers.front().parts) json["content"].push_back(block_of(part));
    json.update(stop_of(answers.front()));
    json["usage"] = usage_json(usage);
    return json.dump();
  }

  std::string error_event(const ErrorReply& error) override {
    return stream_event(anthropic_error(error), "error");
  }

 private:
  static std::string event(const std::string& type, const JsonText& members) {
    JsonText json = {{"type", type}};
    json.update(members);
    return stream_event(json, type);
  }
  /// Returns an event of the last block.
  static std::string block_event(const ChatAnswer& answer, const std::string& type,
                                 const JsonText& members) {
    JsonText json = {{"index", answer.parts.size() - 1}};
    json.update(members);
    return event(type, json);
  }

  static JsonText block_of(const ChatPart& part) {
    if (part.kind == Kind::content) return {{"type", "text"}, {"text", part.text}};
    if (part.kind == Kind::reasoning)
      return {{"type", "thinking"}, {"thinking", part.text}, {"signature", ""}};
    // The arguments of a text that was cut are no JSON.
    const bool is_whole = OrderedJson::accept(part.text);
    return {{"type", "tool_use"},
            {"id", part.id},
            {"name", part.name},
            {"input", JsonText::verbatim(is_whole ? part.text : "{}")}};
  }

  static JsonText stop_of(const ChatAnswer& answer) {
    JsonText json = {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
    if (answer.finish == FinishReason::max_positions)
      json["stop_reason"] = "model_context_window_exceeded";
    else if (answer.finish != FinishReason::stop)
      json["stop_reason"] = "max_tokens";
    else if (!answer.stop_string.empty())
      json = {{"stop_reason", "stop_sequence"}, {"stop_sequence", answer.stop_string}};
    else if (answer.num_calls() > 0)
      json["stop_reason"] = "tool_use";
    return json;
  }

  /// Anthropic counts tokens from the cache apart from the others of the prompt.
  static JsonText usage_json(const CompletionUsage& usage) {
    return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached_tokens},
            {"output_tokens", usage.completion_tokens}};
  }

  const JsonText head_;  ///< the message before it has content
  const std::int64_t num_prompt_tokens_;
};

/// Reads a request, or one to count tokens, which needs no max_tokens.
ChatRequest read_messages(const std::string& body) {
  ChatRequest read = read_chat_request(body, kReaders);
  if (!read.body->contains("messages"))
    throw UserError({"request body: field 'messages' is missing", "", ""});
  if (read.messages->empty())
    throw UserError({"request body: field 'messages'", "says nothing", "give a message of a user"});
  if (read.messages->back()["role"] == "assistant") {  // the answer goes on with it
    read.continue_final_message = true;
    read.add_generation_prompt = false;
  }
  return read;
}

}  // namespace

const ChatApi kAnthropicMessagesApi{read_messages, new_chat_writer<AnthropicWriter>,
                                    anthropic_error};

}  // namespace megatron
