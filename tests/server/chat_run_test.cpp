// Chats over HTTP, with a model that continues "d" with "e", and so on: what becomes of the tokens
// of an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "inference/byte_pieces.h"
#include "inference/successor_model.h"
#include "megatron/base/json.h"
#include "megatron/inference/async_engine.h"
#include "megatron/inference/completions/completion_queue.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/chat_apis.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"
#include "server/raw_client.h"

namespace megatron {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kVocabSize = 20;

/// The letters from "a" on, but that "f" is a special token, and "j" and "k" are halves of a
/// character.
class Letters final : public BytePieces {
 public:
  Letters() : BytePieces(pieces(), /*special=*/5) {}
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(c - 'a');
    return ids;
  }

 private:
  static std::vector<std::string> pieces() {
    std::vector<std::string> all;
    for (char c = 'a'; std::ssize(all) < kVocabSize; ++c) all.emplace_back(1, c);
    all[5] = "<f>";
    all[9] = "\xC3";
    all[10] = "\xA9";
    return all;
  }
};

class ServedChats : public testing::Test {
 protected:
  ServedChats() {
    tokenizer_.tokenizer = std::make_unique<Letters>();
    const auto open_template = [] { return ChatTemplate("{{ messages[0].content }}", "test"); };
    chat_ = std::make_unique<ServedChat>(ServedChat{
        open_template(), open_template(), {}, ChatEncoder(*tokenizer_.tokenizer), OutputFormat{}});
    EngineOptions options;
    options.tokenizer = tokenizer_.tokenizer.get();
    engine_ = std::make_unique<AsyncEngine>(model_, options, ServingRanks{});
    served_ = std::make_unique<ServedModel>(ServedModel{.name = "letters",
                                                        .tokenizer = tokenizer_,
                                                        .chat = chat_.get(),
                                                        .engine = engine_.get(),
                                                        .max_model_len = 64,
                                                        .vocab_size = kVocabSize});
    server_ = std::make_unique<HttpServer>(
        HttpOptions{}, [this](const HttpRequest& request, HttpReply reply) {
          answer_chat(kChatCompletionsApi, *served_, request, std::move(reply));
        });
  }

  /// Returns the body of the answer to a message.
  std::string ask(const std::string& message, const std::string& members) {
    RawClient client(server_->port());
    client.send(post("/", R"({"messages": [{"role": "user", "content": ")" + message +
                              R"("}], "temperature": 0, )" + members + "}"));
    return client.answer().body;
  }
  Json choice(const std::string& message, const std::string& members) {
    return Json::parse(ask(message, members)).at("choices").at(0);
  }

  SuccessorModel model_{kVocabSize, /*sharpness=*/5};
  LoadedTokenizer tokenizer_;
  std::unique_ptr<ServedChat> chat_;
  std::unique_ptr<AsyncEngine> engine_;
  std::unique_ptr<ServedModel> served_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ServedChats, HideSpecialTokensThatNoParserTakes) {
  const std::string four = R"("max_tokens": 4)";
  EXPECT_EQ(choice("d", four)["message"]["content"], "egh");
  EXPECT_EQ(choice("d", four + R"(, "skip_special_tokens": false)")["message"]["content"],
            "e<f>gh");
  const std::string stream = ask("d", four + R"(, "stream": true)");
  EXPECT_THAT(stream, HasSubstr(R"("content":"e")"));
  EXPECT_THAT(stream, Not(HasSubstr("<f>")));
  // Stop strings see them, because parsers do.
  const Json stopped = choice("d", four + R"(, "stop": "<f>g")");
  EXPECT_EQ(stopped["message"]["content"], "e");
  EXPECT_EQ(stopped["stop_reason"], "<f>g");
  EXPECT_EQ(choice("d", four + R"(, "stop_token_ids": [7])")["stop_reason"], 7);
  EXPECT_TRUE(choice("d", four)["stop_reason"].is_null());
}

TEST_F(ServedChats, OfBatchesHaveTheSameAnswers) {
  const std::string body = R"({"messages": [{"role": "user", "content": "d"}], "temperature": 0,
      "n": 2, "logprobs": true, "max_tokens": 4, "stop_token_ids": [7]})";
  const OfflineChat chat = open_offline_chat(*served_, body, "x");
  CompletionQueue queue(model_, tokenizer_, {});
  queue.add(0, chat.request, "line");
  std::vector<FinishedCompletion> finished;
  while (!queue.is_idle()) std::ranges::move(queue.step(), std::back_inserter(finished));
  const Json answer = Json::parse(chat.body(finished.at(0).results));
  EXPECT_EQ(answer["id"], "chatcmpl-x");
  RawClient client(server_->port());
  client.send(post("/", body));
  const Json expected = Json::parse(client.answer().body);
  EXPECT_EQ(answer["choices"], expected["choices"]);
  EXPECT_EQ(answer["choices"][1]["message"]["content"], "eg");
  EXPECT_EQ(answer["usage"], expected["usage"]);
}

TEST_F(ServedChats, ListTheStopTokenWithoutItsText) {
  const std::string members = R"("logprobs": true, "return_token_ids": true, "stop_token_ids": )";
  const Json stopped = choice("d", members + "[7]");
  EXPECT_EQ(stopped["message"]["content"], "eg");
  EXPECT_EQ(stopped["token_ids"], Json::parse("[4, 5, 6, 7]"));
  ASSERT_EQ(stopped["logprobs"]["content"].size(), 4u);
  EXPECT_EQ(stopped["logprobs"]["content"][3]["token"], "h");
  const Json at_once = choice("d", members + "[4]");
  EXPECT_EQ(at_once["message"]["content"], "");
  EXPECT_EQ(at_once["logprobs"]["content"][0]["token"], "e");
  EXPECT_THAT(ask("d", members + "[4]"), HasSubstr(R"("completion_tokens":1)"));
  EXPECT_THAT(ask("d", members + R"([4], "stream": true)"), HasSubstr(R"("token":"e")"));
}

// OpenAI's clients take the first chunk with a reason for the last one of its choice.
TEST_F(ServedChats, SayOnceWhyAStreamEnds) {
  // The first token ends the text, so that all chunks are written after the end is known.
  const std::string stream = ask("d", R"("stream": true, "stop_token_ids": [4])");
  for (const std::string reason : {R"("finish_reason":"stop")", R"("stop_reason":4)"}) {
    const std::size_t at = stream.find(reason);
    ASSERT_NE(at, std::string::npos) << stream;
    EXPECT_EQ(stream.find(reason, at + 1), std::string::npos) << stream;
    EXPECT_LT(stream.find(R"("role":"assistant")"), at);
  }
}

TEST_F(ServedChats, GiveTheBytesOfTokens) {
  const std::string members = R"("max_tokens": 2, "logprobs": true, "top_logprobs": 1)";
  const Json tokens = choice("i", members)["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0]["token"], R"(bytes:\xc3)");
  EXPECT_EQ(tokens[0]["bytes"], Json::parse("[195]"));
  EXPECT_EQ(tokens[0]["top_logprobs"][0]["bytes"], Json::parse("[195]"));
  EXPECT_EQ(tokens[1]["bytes"], Json::parse("[169]"));
  const Json ids = choice("i", members + R"(, "return_tokens_as_token_ids": true)");
  EXPECT_EQ(ids["message"]["content"], "\xC3\xA9");
  EXPECT_EQ(ids["logprobs"]["content"][0]["token"], "token_id:9");
  EXPECT_EQ(ids["logprobs"]["content"][0]["bytes"], Json::parse("[195]"));
}

TEST_F(ServedChats, ScoreThePrompt) {
  const Json scored =
      Json::parse(ask("abd", R"("max_tokens": 1, "prompt_logprobs": 1)"))["prompt_logprobs"];
  ASSERT_EQ(scored.size(), 3u);
  EXPECT_TRUE(scored[0].is_null());
  EXPECT_EQ(scored[1]["1"]["rank"], 1);
  EXPECT_EQ(scored[1]["1"]["decoded_token"], "b");
  EXPECT_EQ(scored[2].size(), 2u);
  EXPECT_EQ(scored[2]["2"]["rank"], 1);
  EXPECT_EQ(scored[2]["3"]["rank"], kVocabSize);
  EXPECT_THAT(ask("abd", R"("prompt_logprobs": 1, "stream": true)"),
              HasSubstr("field 'prompt_logprobs': has no meaning with 'stream'"));
}

}  // namespace
}  // namespace megatron
