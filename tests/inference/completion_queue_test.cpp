#include "megatron/inference/completions/completion_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "inference/byte_pieces.h"
#include "inference/successor_model.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/inference/load_tokenizer.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::HasSubstr;

/// A model that continues 3 with 4, and a tokenizer that writes ids as words.
class Completions : public testing::Test {
 protected:
  Completions() {
    TokenizerConfig config;
    config.tokenizer_type = "NullTokenizer";
    config.vocab_size = kVocabSize;
    tokenizer_.tokenizer = make_tokenizer(config);
    tokenizer_.stop_token_ids = {kVocabSize - 1};
  }

  static CompletionRequest request(const std::string& body) {
    return read_completion(JsonCursor(parse_json(body, "body"), "body"));
  }

  Json choices_of(const FinishedCompletion& one) const {
    return Json::parse(completion_choices(one.request, *tokenizer_.tokenizer, one.results).dump());
  }
  /// Returns the choices of requests that share passes.
  std::vector<Json> answers(const std::vector<std::string>& bodies) {
    CompletionQueue queue(model_, tokenizer_, {});
    for (std::size_t i = 0; i < bodies.size(); ++i) queue.add(i, request(bodies[i]), "line");
    std::vector<Json> choices(bodies.size());
    while (!queue.is_idle())
      for (const FinishedCompletion& one : queue.step()) {
        choices[one.number] = choices_of(one);
        usage_ = usage_of(one.results);
      }
    EXPECT_EQ(queue.num_prompts(), 0);
    return choices;
  }
  Json answer(const std::string& body) { return answers({body}).front(); }

  static constexpr std::int64_t kVocabSize = 20;
  SuccessorModel model_{kVocabSize, /*sharpness=*/5};
  LoadedTokenizer tokenizer_;
  CompletionUsage usage_;
};

TEST_F(Completions, ContinueEachPrompt) {
  const Json choices = answer(R"({"prompt": ["3", "7 8"], "temperature": 0, "max_tokens": 2})");
  ASSERT_EQ(choices.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(choices[i]["index"], i);
    EXPECT_EQ(choices[i]["text"], i == 0 ? " 4 5" : " 9 10");
    EXPECT_EQ(choices[i]["finish_reason"], "length");
    EXPECT_TRUE(choices[i]["logprobs"].is_null());
  }
  EXPECT_EQ(usage_.prompt_tokens, 3);
  EXPECT_EQ(usage_.completion_tokens, 4);
  EXPECT_EQ(usage_.longest, 2 + 2);
}

/// A text begins behind the decoder's first token, not behind the prompt.
TEST_F(Completions, AnswerPromptsThatAnEncoderReads) {
  AnsweringModel model(kVocabSize);
  tokenizer_.decoder_start = 3;
  tokenizer_.encoder_end = 0;
  CompletionQueue queue(model, tokenizer_, {});
  queue.add(0, request(R"({"prompt": ["9 9", [7]], "temperature": 0, "max_tokens": 2})"), "line");
  std::vector<FinishedCompletion> finished;
  while (finished.empty()) finished = queue.step();
  const FinishedCompletion& one = finished.front();
  ASSERT_EQ(one.results.size(), 2u);
  EXPECT_EQ(one.results[0].ids, (std::vector<std::int64_t>{9, 9, 0}));
  EXPECT_EQ(one.results[1].ids, std::vector<std::int64_t>{7}) << "ids are taken as they are";
  EXPECT_EQ(usage_of(one.results, one.request.answers).longest, 3);
  const Json choices = choices_of(one);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(choices[i]["text"], "4 5") << "without a space";
  for (const char* member : {R"("echo": true)", R"("prompt_logprobs": 0)"}) {
    const std::string body = R"({"prompt": "9", )" + std::string(member) + "}";
    EXPECT_THAT(message_of([&] { queue.add(1, request(body), "line 1"); }),
                testing::ContainsRegex("line 1: field '(echo|prompt_logprobs)': an encoder reads"));
  }
}

TEST_F(Completions, EndAtStopTokensAndStrings) {
  const std::vector<Json> choices =
      answers({R"({"prompt": "16", "temperature": 0})",
               R"({"prompt": "16", "temperature": 0, "ignore_eos": true, "max_tokens": 5})",
               R"({"prompt": [3], "temperature": 0, "stop": " 6"})",
               R"({"prompt": [3], "temperature": 0, "stop_token_ids": [6]})"});
  EXPECT_EQ(choices[0][0]["text"], " 17 18");
  EXPECT_EQ(choices[0][0]["finish_reason"], "stop");
  EXPECT_EQ(choices[1][0]["finish_reason"], "length");
  EXPECT_EQ(choices[2][0]["text"], " 4 5");
  EXPECT_EQ(choices[2][0]["finish_reason"], "stop");
  EXPECT_EQ(choices[3][0]["text"], " 4 5");
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(choices[i][0].at("stop_reason").is_null());
  EXPECT_EQ(choices[2][0]["stop_reason"], " 6");
  EXPECT_EQ(choices[3][0]["stop_reason"], 6);
}

TEST_F(Completions, ListTheStopTokenWithoutItsText) {
  const Json choice = answer(R"({"prompt": [3], "temperature": 0, "stop_token_ids": [6],
                                 "logprobs": 1, "return_token_ids": true})")[0];
  EXPECT_EQ(choice["text"], " 4 5");
  EXPECT_EQ(choice["token_ids"], Json::parse("[4, 5, 6]"));
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"([" 4", " 5", " 6"])"));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0, 2, 4]"));
  EXPECT_NEAR(choice["logprobs"]["token_logprobs"][2].get<double>(),
              choice["logprobs"]["token_logprobs"][0].get<double>(), 1e-6);  // of other rows
  EXPECT_EQ(usage_.completion_tokens, 3);
  EXPECT_EQ(usage_.longest, 3) << "the stop token needs no position";
  // Harnesses drop one token behind the prompt, which may be the stop token.
  const Json echo = answer(R"({"prompt": [4, 5], "temperature": 0, "stop_token_ids": [6],
                               "max_tokens": 1, "echo": true, "logprobs": 1})")[0];
  EXPECT_EQ(echo["text"], "4 5");
  EXPECT_EQ(echo["logprobs"]["token_logprobs"].size(), 3u);
  EXPECT_EQ(usage_.completion_tokens, 1);
}

TEST_F(Completions, ShowSpecialTokensIfTheyAreAsked) {
  std::vector<std::string> letters;
  for (char c = 'a'; std::ssize(letters) < kVocabSize; ++c) letters.emplace_back(1, c);
  letters[18] = "<s>";
  tokenizer_.tokenizer = std::make_unique<BytePieces>(letters, /*special=*/18);
  const std::string body =
      R"({"prompt": [17], "temperature": 0, "ignore_eos": true, "max_tokens": 3,
                               "stop": "<s>t", "echo": true)";
  EXPECT_EQ(answer(body + "}")[0]["text"], "rta");
  const Json kept = answer(body + R"(, "skip_special_tokens": false})")[0];
  EXPECT_EQ(kept["text"], "r") << "the stop string is looked for in the text that is shown";
  EXPECT_EQ(kept["stop_reason"], "<s>t");
}

/// Letters, with a special token that texts may write and that begins each of them.
class MarkedLetters final : public BytePieces {
 public:
  MarkedLetters() : BytePieces({"a", "b", "c", "d", "<s>"}, /*special=*/4) {}
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids{4};
    for (std::size_t i = 0; i < text.size(); ++i) {
      ids.push_back(text[i] == '<' ? 4 : text[i] - 'a');
      if (text[i] == '<') i += 2;
    }
    return ids;
  }
};

// A prompt is repeated as it was given: with the special tokens that are written in it, alone.
TEST_F(Completions, CountTheSpecialTokensOfRepeatedTexts) {
  tokenizer_.tokenizer = std::make_unique<MarkedLetters>();
  for (const char* skips : {"true", "false"}) {
    const Json choice = answer(std::string(R"({"prompt": "a<s>b", "temperature": 0, "logprobs": 0,
        "max_tokens": 1, "echo": true, "skip_special_tokens": )") +
                               skips + "}")[0];
    EXPECT_EQ(choice["text"], "a<s>bc");
    EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["<s>", "a", "<s>", "b", "c"])"));
    EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0, 0, 1, 4, 5]")) << skips;
  }
}

TEST_F(Completions, TellTheLogprobsOfThePrompt) {
  const double hit = 5 - std::log(std::exp(5.0) + 19), miss = -std::log(std::exp(5.0) + 19);
  const Json choice = answer(R"({"prompt": "3 4 7", "temperature": 0, "max_tokens": 1,
                                 "prompt_logprobs": 2, "logprobs": 0})")[0];
  const Json& prompt = choice["prompt_logprobs"];
  ASSERT_EQ(prompt.size(), 3u);
  EXPECT_TRUE(prompt[0].is_null());
  ASSERT_EQ(prompt[1].size(), 2u) << "the token, which is the first, and the second";
  EXPECT_EQ(prompt[1]["4"]["rank"], 1);
  EXPECT_EQ(prompt[1]["4"]["decoded_token"], " 4");
  EXPECT_NEAR(prompt[1]["4"]["logprob"].get<double>(), hit, 1e-12);
  EXPECT_EQ(prompt[1]["0"]["rank"], 2);
  ASSERT_EQ(prompt[2].size(), 3u);
  EXPECT_EQ(prompt[2]["7"]["rank"], 20) << "as likely as all but one";
  EXPECT_NEAR(prompt[2]["7"]["logprob"].get<double>(), miss, 1e-12);
  EXPECT_EQ(prompt[2]["5"]["rank"], 1);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0].size(), 1u) << "it has its own number";
}

TEST_F(Completions, NameTokensByTheirIds) {
  const Json logprobs = answer(R"({"prompt": "3", "temperature": 0, "max_tokens": 2, "logprobs": 1,
                                   "return_tokens_as_token_ids": true})")[0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::parse(R"(["token_id:4", "token_id:5"])"));
  EXPECT_EQ(logprobs["text_offset"], Json::parse("[0, 2]"));
  EXPECT_TRUE(logprobs["top_logprobs"][1].contains("token_id:5"));
}

TEST(TokenName, IsTheTextOrTheBytes) {
  const BytePieces tokenizer({"\xE2\x82", "\xAC", "\xC3\xA9"});
  EXPECT_EQ(token_name(tokenizer, {}, 0).name, R"(bytes:\xe2\x82)");
  EXPECT_EQ(token_name(tokenizer, {}, 0).bytes, "\xE2\x82");
  EXPECT_EQ(token_name(tokenizer, std::vector{0}, 1).name, R"(bytes:\xac)");
  EXPECT_EQ(token_name(tokenizer, std::vector{0}, 2).name, "\xC3\xA9");
  EXPECT_EQ(token_name(tokenizer, {}, 1, /*as_id=*/true).name, "token_id:1");
  EXPECT_EQ(token_name(tokenizer, {}, 1, /*as_id=*/true).bytes, "\xAC");
}

TEST_F(Completions, EchoScoresThePrompt) {
  const double hit = 5 - std::log(std::exp(5.0) + 19), miss = -std::log(std::exp(5.0) + 19);
  const Json choice = answer(
      R"({"prompt": "3 4 7", "temperature": 0, "max_tokens": 1, "echo": true, "logprobs": 1})")[0];
  EXPECT_EQ(choice["text"], "3 4 7 8");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::parse(R"(["3", " 4", " 7", " 8"])"));
  EXPECT_EQ(logprobs["text_offset"], Json::parse("[0, 1, 3, 5]"));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  const std::vector<double> expected{0, hit, miss, hit};
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_NEAR(logprobs["token_logprobs"][i].get<double>(), expected[i], 1e-12);
  // A token that is not among the likely ones is there too.
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 1u);
  EXPECT_EQ(logprobs["top_logprobs"][2].size(), 2u);
  EXPECT_NEAR(logprobs["top_logprobs"][2][" 5"].get<double>(), hit, 1e-12);
  EXPECT_NEAR(logprobs["top_logprobs"][2][" 7"].get<double>(), miss, 1e-12);
}

TEST_F(Completions, WithoutNewTokensThePromptIsScored) {
  const Json choice =
      answer(R"({"prompt": "3 4", "max_tokens": 0, "echo": true, "logprobs": 0})")[0];
  EXPECT_EQ(choice["text"], "3 4");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), 2u);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1].size(), 1u);
}

TEST_F(Completions, KeepTheBestOfSeveralTexts) {
  const std::string sampled =
      R"("prompt": [[3], [9]], "max_tokens": 3, "logprobs": 0, "seed": 1, "ignore_eos": true)";
  const Json all = answer("{" + sampled + R"(, "n": 8})");
  const Json best = answer("{" + sampled + R"(, "n": 2, "best_of": 8})");
  ASSERT_EQ(all.size(), 16u);
  ASSERT_EQ(best.size(), 4u);
  const auto mean = [](const Json& choice) {
    double sum = 0;
    for (const Json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<double>();
    return sum;
  };
  for (std::size_t prompt = 0; prompt < 2; ++prompt) {
    std::vector<double> means;
    for (std::size_t i = 0; i < 8; ++i) means.push_back(mean(all[8 * prompt + i]));
    std::ranges::sort(means, std::greater());
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(best[2 * prompt + i]["index"], 2 * prompt + i);
      EXPECT_EQ(mean(best[2 * prompt + i]), means[i]);
    }
  }
  EXPECT_EQ(usage_.completion_tokens, 2 * 8 * 3) << "those that were sampled";
}

TEST_F(Completions, SearchBeams) {
  const Json choices = answer(R"({"prompt": "3", "num_beams": 3, "n": 2, "max_tokens": 2})");
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0]["text"], " 4 5");
  EXPECT_NE(choices[1]["text"], " 4 5");
}

// A text with a seed is a function of its request alone; without one, equal requests differ.
TEST_F(Completions, ASeedMakesATextIndependentOfItsPlace) {
  const std::string seeded = R"({"prompt": "3", "temperature": 3, "max_tokens": 12, "seed": 7})",
                    other = R"({"prompt": "3", "temperature": 3, "max_tokens": 12})";
  const std::vector<Json> choices = answers({seeded, other, other, seeded});
  EXPECT_EQ(choices[0], choices[3]);
  EXPECT_NE(choices[1], choices[2]);
  EXPECT_EQ(answers({other, other, other})[2], choices[2]);
}

TEST_F(Completions, RefusedRequestsLeaveNothingBehind) {
  CompletionQueue queue(model_, tokenizer_, {});
  for (const auto& [body, text] : std::vector<std::pair<std::string, std::string>>{
           {R"({"prompt": [[3], []]})", "line: prompt: ids: an empty list"},
           {R"({"prompt": [3, 20]})", "line: prompt: ids[1]: 20"},
           {R"({"prompt": "x"})", "x"},
           {R"({"prompt": "3", "stream": true})", "line: field 'stream': a batch has no streams"},
           {R"({"prompt": "3", "logit_bias": {"20": 1}})", "line: 'logit_bias': token id 20"},
           {R"({"prompt": "3", "stop_token_ids": [20]})", "line: stop_token_ids: token id 20"}})
    EXPECT_THAT(message_of([&, body = body] { queue.add(0, request(body), "line"); }),
                HasSubstr(text));
  EXPECT_TRUE(queue.is_idle());
  EXPECT_EQ(queue.num_prompts(), 0);
  queue.add(0, request(R"({"prompt": "3", "max_tokens": 0})"), "line");
  EXPECT_EQ(queue.step().size(), 1u);
}

TEST_F(Completions, OneThatCannotBeSampledEndsAlone) {
  CompletionQueue queue(model_, tokenizer_, {});
  CompletionRequest bad = request(R"({"prompt": ["3", "4"], "min_tokens": 2})");
  for (std::int64_t id = 0; id < kVocabSize; ++id) bad.params.stop_token_ids.push_back(id);
  queue.add(0, std::move(bad), "line");
  queue.add(1, request(R"({"prompt": "3", "max_tokens": 2, "temperature": 0})"), "line");
  std::vector<FinishedCompletion> finished;
  while (!queue.is_idle()) std::ranges::move(queue.step(), std::back_inserter(finished));
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].number, 0u);
  EXPECT_THAT(message_of([&] { std::rethrow_exception(finished[0].error); }),
              HasSubstr("line: 'min_tokens': every token that the model allows ends the text"));
  EXPECT_EQ(finished[1].error, nullptr);
  EXPECT_EQ(choices_of(finished[1])[0]["text"], " 4 5");
  EXPECT_EQ(queue.num_prompts(), 0);
}

}  // namespace
}  // namespace megatron
