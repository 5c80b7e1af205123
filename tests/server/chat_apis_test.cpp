// The bodies of the chat APIs, the prompts that they become, and the events of their answers. The
// expected forms are those of OpenAI's and Anthropic's published clients.
#include "megatron/server/api/chat_apis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/request_server.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A server that is never asked.
class IdleServer final : public RequestServer {
 public:
  IdleServer() : RequestServer({}) {}

 private:
  void apply(ServingCommand) override {}
  bool step() override { return false; }
};

constexpr const char* kTemplate =
    "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}({{ m.reasoning_content }})"
    "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}>{% endfor %}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if enable_thinking is defined %}{thinks={{ enable_thinking }}}{% endif %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

class ChatApis : public testing::Test {
 protected:
  ChatApis() {
    TokenizerConfig config;
    config.tokenizer_type = "ByteTokenizer";
    tokenizer_.tokenizer = make_tokenizer(config);
    chat_ = std::make_unique<ServedChat>(ServedChat{ChatTemplate(kTemplate, "test"),
                                                    ChatTemplate(kTemplate, "test"),
                                                    {},
                                                    ChatEncoder(*tokenizer_.tokenizer),
                                                    OutputFormat{}});
  }

  std::string prompt(const ChatApi& api, const std::string& body) {
    ChatRequest request = api.read(body);
    render_prompt(model(), request);
    return request.prompt;
  }
  ServedModel model() const {
    return {.name = "m", .tokenizer = tokenizer_, .chat = chat_.get(), .engine = &server_};
  }

  /// Returns the events of an answer that thinks, speaks and calls a tool.
  std::vector<Json> events(const ChatApi& api, const std::string& body) {
    ChatRequest request = api.read(body);
    render_prompt(model(), request);
    const auto writer = api.make_writer(model(), request);
    ChatAnswer answer;
    std::string stream = writer->begin();
    const auto part = [&](ChatPart one, const std::string& text) {
      if (!answer.parts.empty()) stream += writer->end_part(answer);
      answer.parts.push_back(std::move(one));
      stream += writer->begin_part(answer);
      answer.parts.back().text = text;
      stream += writer->add(answer, {.text = text, .tokens = {}, .ids = {}});
    };
    part({.kind = OutputKind::reasoning}, "hm");
    part({.kind = OutputKind::content}, "Hi");
    part({.kind = OutputKind::call, .name = "f", .id = "call_1"}, R"({"x":1})");
    answer.finish = FinishReason::stop;
    stream += writer->end_part(answer);
    stream += writer->end_answer(answer, {});
    stream += writer->end({answer}, kUsage);
    whole_ = Json::parse(writer->body({answer}, kUsage));
    std::vector<Json> all;
    for (std::size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos;) {
      const std::size_t end = stream.find("\n\n", at);
      const std::string data = stream.substr(at + 6, end - at - 6);
      all.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
      at = end;
    }
    return all;
  }
  static std::vector<std::string> types(const std::vector<Json>& events) {
    std::vector<std::string> names;
    for (const Json& event : events) names.push_back(event.value("type", ""));
    return names;
  }

  static constexpr CompletionUsage kUsage{
      .prompt_tokens = 9, .cached_tokens = 4, .completion_tokens = 5, .reasoning_tokens = 2};
  LoadedTokenizer tokenizer_;
  mutable IdleServer server_;
  std::unique_ptr<ServedChat> chat_;
  Json whole_;
};

TEST_F(ChatApis, RenderTheSameConversation) {
  const std::string expected =
      R"([system]Be kind[user]Hi[assistant](hm)<f{"b": 1, "a": 2}>[tool]3[user]So?[assistant])";
  EXPECT_EQ(prompt(kChatCompletionsApi, R"({"messages": [
    {"role": "developer", "content": "Be kind"},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"id": "c",
      "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "3"}, {"role": "user", "content": "So?"}]})"),
            expected);
  EXPECT_EQ(prompt(kResponsesApi, R"({"instructions": "Be kind", "input": [
    {"role": "user", "content": "Hi"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"b\": 1, \"a\": 2}"},
    {"type": "function_call_output", "call_id": "c", "output": "3"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "So?"}]}]})"),
            expected);
  EXPECT_EQ(prompt(kAnthropicMessagesApi, R"({"max_tokens": 5, "system": "Be kind", "messages": [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
      {"type": "tool_use", "id": "c", "name": "f", "input": {"b": 1, "a": 2}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "3"},
      {"type": "text", "text": "So?"}]}]})"),
            expected);
}

TEST_F(ChatApis, TheAnswerGoesOnWithTheLastMessage) {
  EXPECT_EQ(prompt(kAnthropicMessagesApi, R"({"max_tokens": 5, "messages": [
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well "}]})"),
            "[user]Hi[assistant]Well ");
}

TEST_F(ChatApis, EffortAndKwargsReachTheTemplate) {
  const std::string hi = R"({"messages": [{"role": "user", "content": "Hi"}], )";
  EXPECT_THAT(prompt(kChatCompletionsApi, hi + R"("reasoning_effort": "none"})"),
              HasSubstr("{thinks=False}"));
  EXPECT_THAT(prompt(kChatCompletionsApi, hi + R"("reasoning_effort": "low", "chat_template_kwargs":
                             {"enable_thinking": false}})"),
              HasSubstr("{thinks=False}"));
}

TEST_F(ChatApis, TheNewerNameOfMaxTokensWins) {
  const std::string both = R"({"messages": [{"role": "user", "content": "Hi"}],
      "max_tokens": 20, "max_completion_tokens": 3})";
  EXPECT_EQ(kChatCompletionsApi.read(both).request.params.max_new_tokens, 3);
}

TEST_F(ChatApis, FormatsKeepTheOrderOfTheirKeys) {
  const std::string hi = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, )",
                    schema = R"({"properties":{"b":{},"a":{}}})";
  const auto constraint = [](const ChatApi& api, const std::string& body) {
    return api.read(body).request.params.constraint;
  };
  for (const OutputConstraint& one :
       {constraint(kChatCompletionsApi, hi + R"("response_format": {"type": "json_schema",
            "json_schema": {"name": "n", "schema": )" +
                                            schema + "}}}"),
        constraint(kChatCompletionsApi, hi + R"("guided_json": )" + schema + "}"),
        constraint(kResponsesApi, R"({"input": "Hi", "text": {"format": {"type": "json_schema",
            "name": "n", "schema": )" +
                                      schema + "}}}"),
        constraint(kAnthropicMessagesApi, hi + R"("output_config": {"format": {
            "type": "json_schema", "schema": )" +
                                              schema + "}}}")}) {
    EXPECT_EQ(one.kind, OutputConstraint::Kind::json_schema);
    EXPECT_THAT(one.texts, ElementsAre(schema));
  }
}

TEST_F(ChatApis, StreamChatCompletions) {
  const std::vector<Json> all =
      events(kChatCompletionsApi, R"({"messages": [{"role": "user", "content": "Hi"}],
                                      "stream": true, "stream_options": {"include_usage": true}})");
  ASSERT_EQ(all.size(), 8u);
  const auto delta = [&](std::size_t i) { return all[i]["choices"][0]["delta"]; };
  EXPECT_EQ(delta(0), Json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(delta(1), Json::parse(R"({"reasoning_content": "hm"})"));
  EXPECT_EQ(delta(2), Json::parse(R"({"content": "Hi"})"));
  EXPECT_EQ(delta(3), Json::parse(R"({"tool_calls": [{"index": 0, "id": "call_1",
      "type": "function", "function": {"name": "f", "arguments": ""}}]})"));
  EXPECT_EQ(delta(4)["tool_calls"][0]["function"]["arguments"], R"({"x":1})");
  EXPECT_EQ(all[5]["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(all[6]["usage"]["total_tokens"], 14);
  EXPECT_EQ(all[6]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(all[7], "[DONE]");
  EXPECT_EQ(whole_["choices"][0]["message"]["content"], "Hi");
  EXPECT_EQ(whole_["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "f");
}

TEST_F(ChatApis, StreamResponses) {
  const std::vector<Json> all = events(kResponsesApi, R"({"input": "Hi", "stream": true})");
  EXPECT_THAT(
      types(all),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["sequence_number"], i);
  EXPECT_EQ(all.back()["response"]["output"], whole_["output"]);
  EXPECT_EQ(whole_["output"][1]["content"][0]["text"], "Hi");
  EXPECT_EQ(whole_["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
}

TEST_F(ChatApis, StreamAnthropicMessages) {
  const std::vector<Json> all =
      events(kAnthropicMessagesApi,
             R"({"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_THAT(
      types(all),
      ElementsAre("message_start", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "content_block_start",
                  "content_block_delta", "content_block_stop", "content_block_start",
                  "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(all[9]["delta"],
            Json::parse(R"({"type": "input_json_delta", "partial_json": "{\"x\":1}"})"));
  EXPECT_EQ(all[11]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(all[11]["usage"]["input_tokens"], 5);
  EXPECT_EQ(all[11]["usage"]["cache_read_input_tokens"], 4);
  EXPECT_EQ(whole_["content"][2]["input"]["x"], 1);
}

TEST_F(ChatApis, NameWhatIsWrong) {
  const std::string hi = R"("messages": [{"role": "user", "content": "Hi"}])";
  const auto refusal = [&](const ChatApi& api, const std::string& body) {
    return message_of([&] { api.read(body); });
  };
  EXPECT_THAT(refusal(kChatCompletionsApi, R"({"messages": [{"role": "user", "content":
                [{"type": "image_url", "image_url": {"url": "x"}}]}]})"),
              HasSubstr("image_url"));
  EXPECT_THAT(refusal(kChatCompletionsApi, "{" + hi + R"(, "echo": true})"), HasSubstr("'echo'"));
  EXPECT_THAT(refusal(kChatCompletionsApi, "{" + hi + R"(, "tool_choice": "required"})"),
              HasSubstr("'tool_choice': there are no tools"));
  EXPECT_THAT(refusal(kAnthropicMessagesApi, "{" + hi + R"(, "max_tokens": 9, "tool_choice":
                {"type": "tool", "name": "h"}, "tools": [{"name": "f", "input_schema": {}}]})"),
              HasSubstr("there is no tool 'h'"));
  EXPECT_THAT(refusal(kChatCompletionsApi, "{" + hi + R"(, "response_format": {"type": "yaml"}})"),
              HasSubstr("'yaml'"));
  EXPECT_THAT(refusal(kResponsesApi, R"({"input": "Hi", "text": {"format": {"type":
                "json_schema"}}})"),
              HasSubstr("text.format: field 'schema'"));
  EXPECT_THAT(refusal(kAnthropicMessagesApi, "{" + hi + R"(, "max_tokens": 9,
                "thinking": {"type": "enabled", "budget_tokens": -8}})"),
              HasSubstr("'budget_tokens'"));
  EXPECT_THAT(refusal(kChatCompletionsApi,
                      "{" + hi + R"(, "stream": true, "return_routed_experts": true})"),
              HasSubstr("'return_routed_experts'"));
  EXPECT_THAT(refusal(kChatCompletionsApi, "{" + hi + R"(, "temperature": -1})"),
              HasSubstr("temperature"));
  // A user's message without parts says nothing, and instructions alone ask for nothing.
  EXPECT_THAT(refusal(kAnthropicMessagesApi, R"({"max_tokens": 9, "messages": [{"role": "user",
                "content": []}]})"),
              HasSubstr("says nothing"));
  EXPECT_THAT(refusal(kResponsesApi, R"({"instructions": "Hi"})"), HasSubstr("'input' is missing"));
  EXPECT_THAT(
      refusal(kResponsesApi, R"({"input": "Hi", "max_output_tokens": -1, "max_tokens": 1})"),
      HasSubstr("'max_output_tokens'"));
  EXPECT_THAT(
      refusal(kResponsesApi, R"({"input": "Hi", "max_output_tokens": 1, "max_tokens": -1})"),
      HasSubstr("'max_tokens'"));
  EXPECT_THAT(refusal(kResponsesApi, R"({"input": "Hi", "previous_response_id": "r"})"),
              HasSubstr("keeps no answers"));
  EXPECT_THAT(refusal(kResponsesApi, R"({"input": "Hi", "store": true})"),
              HasSubstr("keeps no answers"));
  EXPECT_THAT(refusal(kResponsesApi, R"({"input": "Hi", "tools": [{"type": "web_search"}]})"),
              HasSubstr("web_search"));
  EXPECT_EQ(Json::parse(kAnthropicMessagesApi.error_body({400, "no"}).dump()),
            Json::parse(R"({"type": "error",
                            "error": {"type": "invalid_request_error", "message": "no"}})"));
  chat_.reset();
  EXPECT_THAT(message_of([&] { prompt(kChatCompletionsApi, "{" + hi + "}"); }),
              HasSubstr("--chat-template FILE"));
}

}  // namespace
}  // namespace megatron
