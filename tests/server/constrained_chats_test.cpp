// Conversations whose answers must have a form: the texts that a model says, through HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "inference/successor_model.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/inference/async_engine.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"
#include "server/raw_client.h"

namespace megatron {
namespace {

using testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.content }}{% endfor %}>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}";

/// A model that continues "a" with "b", or with the first byte that is allowed.
class ConstrainedChats : public testing::Test {
 protected:
  ConstrainedChats() {
    TokenizerConfig config;
    config.tokenizer_type = "ByteTokenizer";
    tokenizer_.tokenizer = make_tokenizer(config);
    chat_ = std::make_unique<ServedChat>(ServedChat{ChatTemplate(kTemplate, "test"),
                                                    ChatTemplate(kTemplate, "test"),
                                                    {},
                                                    ChatEncoder(*tokenizer_.tokenizer),
                                                    find_output_format("hermes", "qwen3", "")});
    EngineOptions options;
    options.tokenizer = tokenizer_.tokenizer.get();
    engine_ = std::make_unique<AsyncEngine>(model_, options, ServingRanks{});
    served_ = std::make_unique<ServedModel>(ServedModel{.name = "small",
                                                        .tokenizer = tokenizer_,
                                                        .chat = chat_.get(),
                                                        .engine = engine_.get(),
                                                        .max_model_len = 1024,
                                                        .vocab_size = 257});
    server_ = std::make_unique<HttpServer>(
        HttpOptions{}, [this](const HttpRequest& request, HttpReply reply) {
          for (const auto& routes : {chat_routes(*served_), tokenize_routes(*served_)})
            for (const ApiRoute& route : routes)
              if (route.path == request.path) return route.handler(request, std::move(reply));
        });
  }

  std::string ask(const std::string& path, Json body, const Json& members) {
    body.update({{"temperature", 0}, {"max_tokens", 400}});
    body.update(members);
    RawClient client(server_->port());
    client.send(post(path, body.dump()));
    return client.answer().body;
  }
  /// Returns the answer to a chat completion.
  Json chat(const Json& members) {
    return Json::parse(ask("/v1/chat/completions", hi(), members))["choices"][0];
  }
  static Json hi() {
    return {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})},
            {"reasoning_effort", "none"}};
  }
  /// Returns the tools "f" and "g". The argument of g must be 1.
  static Json tools() {
    Json list = Json::array();
    for (const char* name : {"f", "g"})
      list.push_back({{"type", "function"}, {"function", {{"name", name}}}});
    list[1]["function"]["parameters"] = Json::parse(
        R"({"type": "object", "properties": {"x": {"$ref": "#/$defs/one"}}, "required": ["x"],
            "$defs": {"one": {"const": 1}}})");
    return list;
  }

  SuccessorModel model_{257};
  LoadedTokenizer tokenizer_;
  std::unique_ptr<ServedChat> chat_;
  std::unique_ptr<AsyncEngine> engine_;
  std::unique_ptr<ServedModel> served_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ConstrainedChats, AreTokenizedAsTheyAreRendered) {
  const Json answer = Json::parse(ask("/tokenize", hi(), {{"return_token_strs", true}}));
  const std::string prompt = "Hi><think></think>";
  EXPECT_EQ(answer["count"], prompt.size());
  EXPECT_EQ(answer["tokens"].get<std::vector<int>>(),
            std::vector<int>(prompt.begin(), prompt.end()));
  EXPECT_EQ(answer["token_strs"].size(), prompt.size());
}

TEST_F(ConstrainedChats, CallTheNamedTool) {
  const Json choice = chat(
      {{"tools", tools()}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}}}});
  EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const Json& call = choice["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "g");
  EXPECT_EQ(Json::parse(call["arguments"].get<std::string>()), Json({{"x", 1}}));
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(ConstrainedChats, StreamTheArgumentsOfRequiredCalls) {
  const std::string stream =
      ask("/v1/chat/completions", hi(),
          {{"tools", tools()},
           {"tool_choice", Json::parse(R"({"type": "allowed_tools", "allowed_tools": {"mode":
                "required", "tools": [{"type": "function", "function": {"name": "g"}}]}})")},
           {"parallel_tool_calls", false},
           {"stream", true}});
  std::string name, arguments, finish;
  for (std::size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at) {
    const Json choice =
        Json::parse(stream.substr(at + 6, stream.find("\n\n", at) - at - 6))["choices"][0];
    EXPECT_EQ(choice["delta"].value("content", ""), "");
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"].get<std::string>();
    if (!choice["delta"].contains("tool_calls")) continue;
    const Json& function = choice["delta"]["tool_calls"][0]["function"];
    name += function.value("name", "");
    arguments += function.value("arguments", "");
  }
  EXPECT_EQ(name, "g") << stream;
  EXPECT_EQ(Json::parse(arguments), Json({{"x", 1}}));
  EXPECT_EQ(finish, "tool_calls");
}

// As in vLLM, a call of which there are no arguments yet is none.
TEST_F(ConstrainedChats, DemandedCallsAreNoContentWhenTheyAreCut) {
  for (const char* choice : {R"("required")", R"({"type": "function", "function": {"name": "g"}})"})
    for (const int most : {1, 5, 14}) {
      const Json members{
          {"tools", tools()}, {"tool_choice", Json::parse(choice)}, {"max_tokens", most}};
      const Json cut = chat(members);
      EXPECT_EQ(cut["message"]["content"], "") << cut;
      EXPECT_FALSE(cut["message"].contains("tool_calls"));
      EXPECT_EQ(cut["finish_reason"], "length");
      Json streamed = members;
      streamed["stream"] = true;
      const std::string stream = ask("/v1/chat/completions", hi(), streamed);
      EXPECT_THAT(stream, Not(HasSubstr("{\\\"")));
      EXPECT_THAT(stream, HasSubstr(R"("finish_reason":"length")"));
    }
  const Json message = Json::parse(
      ask("/v1/messages", hi(), Json::parse(R"({"tool_choice": {"type": "any"}, "max_tokens": 5,
          "tools": [{"name": "g", "input_schema": {}}]})")));
  EXPECT_TRUE(message["content"].empty()) << message;
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  const Json response =
      Json::parse(ask("/v1/responses", {{"input", "Hi"}, {"reasoning", {{"effort", "none"}}}},
                      Json::parse(R"({"tool_choice": "required", "max_output_tokens": 5,
              "tools": [{"type": "function", "name": "g"}]})")));
  EXPECT_TRUE(response["output"].empty()) << response;
  EXPECT_EQ(response["status"], "incomplete");
}

TEST_F(ConstrainedChats, CallSomeToolOfAnthropicsMessages) {
  const Json answer =
      Json::parse(ask("/v1/messages", hi(), Json::parse(R"({"tool_choice": {"type": "any",
          "disable_parallel_tool_use": true}, "tools": [{"name": "g", "input_schema": {
          "properties": {"x": {"type": "boolean"}}, "required": ["x"]}}]})")));
  ASSERT_EQ(answer["content"].size(), 1u) << answer;
  EXPECT_EQ(answer["content"][0]["name"], "g");
  EXPECT_TRUE(answer["content"][0]["input"]["x"].is_boolean());
  EXPECT_EQ(answer["stop_reason"], "tool_use");
}

TEST_F(ConstrainedChats, ReasonWithinABudgetBeforeTheirForm) {
  const std::string schema =
      R"({"properties": {"b": {"const": 2}, "a": {"const": 1}}, "required": ["a", "b"]})";
  const Json choice =
      chat({{"reasoning_effort", "high"},
            {"thinking_token_budget", 3},
            {"response_format",
             {{"type", "json_schema"}, {"json_schema", {{"schema", Json::parse(schema)}}}}}});
  EXPECT_EQ(choice["message"]["reasoning_content"], "?@A") << choice;
  EXPECT_EQ(Json::parse(choice["message"]["content"].get<std::string>()),
            Json({{"a", 1}, {"b", 2}}));
}

TEST_F(ConstrainedChats, CountReasoningWithoutTheCallBehindIt) {
  const Json answer = Json::parse(ask("/v1/chat/completions", hi(),
                                      {{"reasoning_effort", "high"},
                                       {"thinking_token_budget", 3},
                                       {"tools", tools()},
                                       {"tool_choice", "required"}}));
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
            3 + std::string("</think>").size())
      << answer;
}

TEST_F(ConstrainedChats, RefuseParametersOfAnotherType) {
  Json list = tools();
  list[1]["function"]["parameters"]["type"] = "strng";
  EXPECT_THAT(ask("/v1/chat/completions", hi(), {{"tools", list}}), HasSubstr("is of type"));
}

TEST_F(ConstrainedChats, ThatDoNotReasonBeginWithTheirForm) {
  EXPECT_EQ(chat({{"guided_choice", {"yes", "no"}}})["message"]["content"], "no");
  const Json answer =
      Json::parse(ask("/v1/responses", {{"input", "Hi"}, {"reasoning", {{"effort", "none"}}}},
                      Json::parse(R"({"text": {"format": {"type": "json_schema", "name": "n",
              "schema": {"const": [1, 2]}}}})")));
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "[1,2]") << answer;
}

TEST_F(ConstrainedChats, RefuseSchemasByName) {
  EXPECT_THAT(
      ask("/v1/chat/completions", hi(), {{"guided_json", {{"dependentSchemas", Json::object()}}}}),
      HasSubstr("dependentSchemas"));
}

}  // namespace
}  // namespace megatron
