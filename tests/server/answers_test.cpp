// The APIs of a model whose encoder reads prompts, and whose decoder says 4, 5, 6 … behind 3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "inference/successor_model.h"
#include "megatron/base/json.h"
#include "megatron/inference/async_engine.h"
#include "server/served_apis.h"

namespace megatron {
namespace {

using testing::HasSubstr;

class AnsweringApis : public ServedApis {
 protected:
  AnsweringApis() {
    tokenizer_.decoder_start = 3;
    tokenizer_.encoder_end = 0;
    EngineOptions options;
    options.tokenizer = tokenizer_.tokenizer.get();
    options.decoder_start = tokenizer_.decoder_start;
    engine_ = std::make_unique<AsyncEngine>(answering_, options, ServingRanks{});
    serve(*engine_);
  }

  Json answer(const std::string& path, const std::string& body) {
    const RawAnswer raw = ask(path, body);
    EXPECT_EQ(raw.status, 200) << raw.body;
    return Json::parse(raw.body, nullptr, /*allow_exceptions=*/false);
  }
  /// Returns a request with a prompt of so many tokens.
  static std::string long_request(int num_tokens, int max_tokens) {
    std::string ids = "9";
    for (int i = 1; i < num_tokens; ++i) ids += ",9";
    return R"({"temperature": 0, "prompt": [)" + ids + R"(], "max_tokens": )" +
           std::to_string(max_tokens) + "}";
  }

  AnsweringModel answering_{kVocabSize};
  std::unique_ptr<AsyncEngine> engine_;
};

TEST_F(AnsweringApis, TextsBeginAnew) {
  const Json body = answer("/v1/completions", R"({"prompt": "9 9", "temperature": 0,
      "max_tokens": 2, "logprobs": 0, "return_token_ids": true})");
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "4 5");
  EXPECT_EQ(choice["token_ids"], Json::parse("[4, 5]"));
  EXPECT_EQ(choice["prompt_token_ids"], Json::parse("[9, 9, 0]"));
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["4", " 5"])"));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0, 1]"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer("/tokenize", R"({"prompt": "9 9"})")["tokens"], Json::parse("[9, 9, 0]"));
}

TEST_F(AnsweringApis, SoDoStreams) {
  const std::string body =
      ask("/v1/completions",
          R"({"prompt": "9 9", "temperature": 0, "max_tokens": 2, "stream": true})")
          .body;
  EXPECT_THAT(body, HasSubstr(R"("text":"4")"));
  EXPECT_THAT(body, HasSubstr(R"("text":" 5")"));
}

// A model of 64 positions has them for each of the two texts, of which one begins with a token.
TEST_F(AnsweringApis, APromptTakesNoPositionsFromItsAnswer) {
  EXPECT_EQ(answer("/v1/completions", long_request(64, 63))["usage"]["completion_tokens"], 63);
  for (const auto& [request, fix] : {std::pair(long_request(64, 64), "ask for at most 63 tokens"),
                                     std::pair(long_request(65, 1), "shorten the prompt")}) {
    const RawAnswer raw = ask("/v1/completions", request);
    EXPECT_EQ(raw.status, 400);
    EXPECT_THAT(raw.body, HasSubstr("context of 64 tokens"));
    EXPECT_THAT(raw.body, HasSubstr(fix));
  }
}

TEST_F(AnsweringApis, RefuseWhatGoesOnWithAPrompt) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "9"}], "max_tokens": 2})";
  struct Case {
    const char* path;
    std::string body, why;
  };
  for (const auto& [path, body, why] :
       {Case{"/v1/completions", R"({"prompt": "9", "echo": true})",
             "field 'echo': an encoder reads the prompt, and the text answers it"},
        Case{"/v1/completions", R"({"prompt": "9", "prompt_logprobs": 1})",
             "field 'prompt_logprobs'"},
        Case{"/v1/chat/completions", chat, "answer single prompts and continue no conversation"},
        Case{"/v1/messages", chat, "use /v1/completions"},
        Case{"/tokenize", chat, "use /v1/completions"},
        Case{"/api", R"({"prompts": ["9"]})", "this API continues prompts"},
        Case{"/v1/embeddings", R"({"input": "9"})",
             "a model with an encoder and a decoder makes no embeddings"}}) {
    const RawAnswer raw = ask(path, body);
    EXPECT_EQ(raw.status, 400) << path;
    EXPECT_THAT(raw.body, HasSubstr(why)) << path;
  }
}

}  // namespace
}  // namespace megatron
