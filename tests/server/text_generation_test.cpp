// Megatron-LM's /api with a model that continues 3 with 4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "inference/successor_model.h"
#include "megatron/inference/async_engine.h"
#include "server/served_apis.h"

namespace megatron {
namespace {

using testing::HasSubstr;

class TextGenerationApi : public ServedApis {
 protected:
  TextGenerationApi() {
    EngineOptions options;
    options.tokenizer = tokenizer_.tokenizer.get();
    engine_ = std::make_unique<AsyncEngine>(predictor_, options, ServingRanks{});
    serve(*engine_);
  }

  nlohmann::json answer(const std::string& members) {
    const RawAnswer raw = ask("/api", "{" + members + "}", "PUT");
    EXPECT_EQ(raw.status, 200) << raw.body;
    return nlohmann::json::parse(raw.body, nullptr, /*allow_exceptions=*/false);
  }

  SuccessorModel predictor_{kVocabSize};
  std::unique_ptr<AsyncEngine> engine_;
};

TEST_F(TextGenerationApi, GoesOnWithThePrompts) {
  const auto body = answer(R"("prompts": ["3 4", "9"], "tokens_to_generate": 2, "top_k": 1,
                              "logprobs": true, "no_log": true, "top_p_decay": 0.0)");
  EXPECT_EQ(body["text"], nlohmann::json::parse(R"(["3 4 5 6", "9 10 11"])"));
  EXPECT_EQ(body["tokens"], nlohmann::json::parse("[[3, 4, 5, 6], [9, 10, 11]]"));
  ASSERT_EQ(body["segments"][0].size(), 4u);
  std::string joined;
  for (const auto& segment : body["segments"][0]) joined += segment.get<std::string>();
  EXPECT_EQ(joined, "3 4 5 6");
  // The successor has the logit 20, the others 0.
  ASSERT_EQ(body["logprobs"][0].size(), 3u);
  for (const auto& logprob : body["logprobs"][0])
    EXPECT_NEAR(logprob.get<double>(), -std::log1p(19 * std::exp(-20.0)), 1e-6);
}

TEST_F(TextGenerationApi, EndsAtStopTokensAndAddsTheFirst) {
  EXPECT_EQ(answer(R"("prompts": ["3"], "top_k": 1, "stop_token": 6,
                       "tokens_to_generate": 8)")["text"][0],
            "3 4 5");
  const auto body = answer(R"("prompts": [""], "top_k": 1, "add_BOS": true,
                              "tokens_to_generate": 2)");
  EXPECT_EQ(body["tokens"], nlohmann::json::parse("[[19, 0, 1]]"));
  EXPECT_TRUE(body["logprobs"].is_null());
}

TEST_F(TextGenerationApi, OnlyScores) {
  const auto body = answer(R"("prompts": ["3 4 5"], "tokens_to_generate": 0, "logprobs": true)");
  EXPECT_EQ(body["text"][0], "3 4 5");
  EXPECT_EQ(body["logprobs"][0].size(), 2u);
}

TEST_F(TextGenerationApi, SearchesWithBeams) {
  const auto body = answer(R"("prompts": ["3"], "tokens_to_generate": 2, "beam_width": 2)");
  ASSERT_EQ(body["text"].size(), 2u);
  EXPECT_EQ(body["text"][0], "3 4 5");
  EXPECT_GT(body["scores"][0].get<double>(), body["scores"][1].get<double>());
}

TEST_F(TextGenerationApi, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("sentences": ["3"])", "'sentences': is not known here"},
      {R"("prompts": [])", "give 1 to 128"},
      {R"("prompts": "3")", "'prompts' must be an array"},
      {R"("prompts": [""])", "add_BOS"},
      {R"("prompts": ["3"], "tokens_to_generate": 0)", "'logprobs'"},
      {R"("prompts": ["3"], "tokens_to_generate": 64)", "context of 64 tokens"},
      {R"("prompts": ["3"], "top_k": 1, "top_p": 0.5)", "'top_p': has no meaning with 'top_k'"},
      {R"("prompts": ["3"], "top_p": 0.5, "top_p_decay": 0.9)", "'top_p_decay'"},
      {R"("prompts": ["3"], "prevent_newline_after_colon": true)", "prevent_newline_after_colon"},
      {R"("prompts": ["3"], "random_seed": -1)", "'random_seed'"},
      {R"("prompts": ["3"], "beam_width": 1)", "'beam_width'"},
      {R"("prompts": ["3", "4"], "beam_width": 2)", "'beam_width'"},
      {R"("prompts": ["3"], "beam_width": 2, "stop_on_eol": true)", "'num_beams'"},
      {R"("prompts": ["3"], "add_BOS": 1)", "'add_BOS' must be true or false"}};
  for (const auto& [members, why] : cases) {
    const RawAnswer raw = ask("/api", "{" + std::string(members) + "}", "PUT");
    EXPECT_EQ(raw.status, 400) << members;
    EXPECT_THAT(raw.body, HasSubstr(why)) << members;
    const auto body = nlohmann::json::parse(raw.body);
    EXPECT_EQ(body["message"], body["error"]["message"]);
  }
}

TEST_F(TextGenerationApi, RefusesLongPromptsBeforeItEncodesThem) {
  model_->max_prompt_bytes = 10;
  const RawAnswer raw = ask("/api", R"({"prompts": ["not numbers"]})", "PUT");
  EXPECT_EQ(raw.status, 400);
  EXPECT_THAT(raw.body, HasSubstr("the prompt has 11 bytes"));
}

}  // namespace
}  // namespace megatron
