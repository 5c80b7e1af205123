#include "megatron/server/api/completions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "inference/successor_model.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/inference/async_engine.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/request_server.h"
#include "megatron/server/api/served_model.h"
#include "server/raw_client.h"

namespace megatron {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kVocabSize = 20;

/// Begins each text with a token and never ends it.
class EndlessEngine final : public RequestServer {
 public:
  EndlessEngine() : RequestServer({}) { start(); }
  ~EndlessEngine() override { stop(); }

 private:
  void apply(ServingCommand command) override {
    if (command.kind == ServingCommand::Kind::add)
      tell({.update = {.request = command.request, .token = 4}});
  }
  bool step() override { return false; }
};

/// A model that continues 3 with 4, behind HTTP.
class ServedCompletions : public testing::Test {
 protected:
  ServedCompletions() {
    TokenizerConfig config;
    config.tokenizer_type = "NullTokenizer";
    config.vocab_size = kVocabSize;
    tokenizer_.tokenizer = make_tokenizer(config);
    EngineOptions options;
    options.tokenizer = tokenizer_.tokenizer.get();
    engine_ = std::make_unique<AsyncEngine>(model_, options, ServingRanks{});
    served_ = std::make_unique<ServedModel>(ServedModel{.name = "small",
                                                        .tokenizer = tokenizer_,
                                                        .engine = engine_.get(),
                                                        .max_model_len = 64,
                                                        .vocab_size = kVocabSize});
    server_ = std::make_unique<HttpServer>(HttpOptions{},
                                           [this](const HttpRequest& request, HttpReply reply) {
                                             answer_completion(*served_, request, std::move(reply));
                                           });
  }

  RawAnswer ask(const std::string& body) {
    RawClient client(server_->port());
    client.send(post("/v1/completions", body));
    return client.answer();
  }

  static std::vector<Json> events(const std::string& body) {
    std::vector<Json> all;
    for (std::size_t at = 0; (at = body.find("data: {", at)) != std::string::npos; at += 6)
      all.push_back(Json::parse(body.substr(at + 6, body.find("\n\n", at) - at - 6)));
    return all;
  }

  SuccessorModel model_{kVocabSize, /*sharpness=*/5};
  LoadedTokenizer tokenizer_;
  std::unique_ptr<AsyncEngine> engine_;
  std::unique_ptr<ServedModel> served_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ServedCompletions, AnswersWhatEvaluationHarnessesRead) {
  const RawAnswer answer = ask(R"({"model": "small", "prompt": [[3, 4, 5], [7]], "temperature": 0,
      "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json body = Json::parse(answer.body);
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& choice = body["choices"][i];
    const std::size_t size = i == 0 ? 4 : 2;
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), size);
    EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
    EXPECT_FALSE(choice["logprobs"]["top_logprobs"][1].empty());
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(ServedCompletions, StreamHoldsStopStringsBack) {
  const RawAnswer answer = ask(R"({"prompt": [3], "temperature": 0, "stop": " 5 6",
      "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_THAT(answer.body, HasSubstr(R"("text":" 4")"));
  EXPECT_THAT(answer.body, Not(HasSubstr(R"("text":" 5)")));
  EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"stop")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("completion_tokens":3)"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServedCompletions, TakeMembersOfVllm) {
  const auto text = [&](const std::string& members) {
    const std::string body = R"({"prompt": [9, 3], "temperature": 0, "max_tokens": 3, )" + members;
    const Json choice = Json::parse(ask(body + "}").body)["choices"][0];
    std::string joined;
    for (const Json& event : events(ask(body + R"(, "stream": true})").body))
      joined += event["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(choice["text"], joined);
    return joined;
  };
  EXPECT_EQ(text(R"("stop": " 5", "include_stop_str_in_output": true)"), " 4 5");
  EXPECT_EQ(text(R"("stop": " 5", "include_stop_str_in_output": false)"), " 4");
  EXPECT_EQ(text(R"("bad_words": ["5"])"), " 4 0 1") << "the first of the others";
  const Json usage = Json::parse(ask(R"({"prompt": "9 3", "temperature": 0, "max_tokens": 1,
                                         "truncate_prompt_tokens": 1})")
                                     .body)["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 1);
}

TEST_F(ServedCompletions, TellTheirClientsWhenTheEngineStops) {
  EndlessEngine engine;
  const ServedModel model{.name = "small",
                          .tokenizer = tokenizer_,
                          .engine = &engine,
                          .max_model_len = 64,
                          .vocab_size = kVocabSize};
  HttpServer server({}, [&](const HttpRequest& request, HttpReply reply) {
    answer_completion(model, request, std::move(reply));
  });
  RawClient stream(server.port()), whole(server.port());
  stream.send(post("/", R"({"prompt": [3], "stream": true})"));
  whole.send(post("/", R"({"prompt": [3]})"));
  ASSERT_TRUE(stream.read_until("data: {"));
  ASSERT_TRUE(eventually([&] { return *model.num_texts == 2; }));
  engine.stop();
  const std::string body = stream.answer().body;
  EXPECT_EQ(events(body).size(), 2u) << body;
  EXPECT_THAT(body, HasSubstr(R"("message":"the engine was stopped)"));
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(whole.answer().status, 500);
}

// The pieces of a stream make up what is sent at once.
TEST_F(ServedCompletions, StreamsRepeatPromptsWithLogprobs) {
  for (const std::string members :
       {R"("max_tokens": 3, "n": 2, "stop": " 19")", R"("max_tokens": 0)",
        R"("max_tokens": 3, "stop_token_ids": [4, 8], "return_token_ids": true)"}) {
    const std::string body = R"({"prompt": ["3 4 9", [7]], "temperature": 0, "echo": true,
                                 "logprobs": 2, )" +
                             members;
    const Json whole = Json::parse(ask(body + "}").body)["choices"];
    Json joined = Json::array();
    for (const Json& event : events(ask(body + R"(, "stream": true})").body)) {
      const Json& piece = event["choices"][0];
      const auto index = piece["index"].get<std::size_t>();
      if (index >= joined.size() || joined[index].is_null()) {
        joined[index] = piece;
        continue;
      }
      Json& to = joined[index];
      to["text"] = to["text"].get<std::string>() + piece["text"].get<std::string>();
      for (const char* name : {"finish_reason", "stop_reason"}) to[name] = piece[name];
      const auto append = [](Json& list, const Json& more) {
        list.insert(list.end(), more.begin(), more.end());
      };
      for (const auto& [name, list] : piece["logprobs"].items()) append(to["logprobs"][name], list);
      if (piece.contains("token_ids")) append(to["token_ids"], piece["token_ids"]);
    }
    EXPECT_EQ(joined, whole) << members;
  }
}

TEST_F(ServedCompletions, CountTheTextsThatWait) {
  served_->max_texts = 4;
  const std::string four = R"({"prompt": [[3], [4]], "best_of": 2})";
  EXPECT_EQ(ask(four).status, 200);
  EXPECT_EQ(*served_->num_texts, 0);
  const RawAnswer large = ask(R"({"prompt": [[3], [4], [5]], "n": 2})");
  EXPECT_EQ(large.status, 400);
  EXPECT_THAT(large.body, HasSubstr("--max-queued-requests"));
  *served_->num_texts = 1;  // of another request
  const RawAnswer full = ask(four);
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.headers.at("retry-after"), "1");
  EXPECT_THAT(full.body, HasSubstr(R"("code":"queue_full")"));
  EXPECT_EQ(*served_->num_texts, 1);
  EXPECT_EQ(ask(R"({"prompt": [[3], [4], [5]]})").status, 200);
}

TEST_F(ServedCompletions, BoundTheLikelyTokens) {
  served_->max_logprobs = 2;
  EXPECT_EQ(ask(R"({"prompt": [3], "logprobs": 2, "prompt_logprobs": 2})").status, 200);
  for (const std::string name : {"logprobs", "prompt_logprobs"}) {
    const RawAnswer answer = ask(R"({"prompt": [3], ")" + name + R"(": 3})");
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, HasSubstr("'" + name + "'"));
    EXPECT_THAT(answer.body, HasSubstr("at most 2"));
  }
}

TEST_F(ServedCompletions, MistakesAreTheClients) {
  const RawAnswer other = ask(R"({"prompt": [3], "model": "large"})");
  EXPECT_EQ(other.status, 404);
  EXPECT_THAT(other.body, HasSubstr(R"("param":"model","code":"model_not_found")"));
  EXPECT_THAT(ask(R"({"prompt": [3], "top_p": 7})").body, HasSubstr(R"("param":"top_p")"));
  const RawAnswer long_one = ask(R"({"prompt": [3], "max_tokens": 64})");
  EXPECT_EQ(long_one.status, 400);
  EXPECT_THAT(long_one.body, HasSubstr("the model has a context of 64 tokens"));
  EXPECT_THAT(long_one.body, HasSubstr("ask for at most 63 tokens, or shorten the prompt"));
  EXPECT_THAT(long_one.body, HasSubstr(R"("param":null,"code":"context_length_exceeded")"));
  EXPECT_EQ(ask(R"({"prompt": [99]})").status, 400);
  const RawAnswer bias = ask(R"({"prompt": [3], "logit_bias": {"999999": 1}})");
  EXPECT_EQ(bias.status, 400);
  EXPECT_THAT(bias.body, HasSubstr("'logit_bias': token id 999999"));
  const RawAnswer huge = ask(R"({"prompt": [3], "temperature": 1e400})");
  EXPECT_EQ(huge.status, 400);
  EXPECT_THAT(huge.body, HasSubstr("the body: field 'temperature': the number is larger"));
}

}  // namespace
}  // namespace megatron
