#include "megatron/inference/scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "inference/successor_model.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Calls = std::vector<SuccessorModel::Call>;
using Ids = std::vector<std::int64_t>;
using testing::HasSubstr;

TEST(Scorer, GivesEveryTokenItsLogProbability) {
  SuccessorModel model(10, /*sharpness=*/2);
  const double hit = 2 - std::log(std::exp(2.0) + 9), miss = -std::log(std::exp(2.0) + 9);
  const Score score = score_tokens(model, Ids{4, 5, 6, 0}, "ids");
  ASSERT_EQ(score.logprobs.size(), 3u);
  EXPECT_NEAR(score.logprobs[0], hit, 1e-12);
  EXPECT_NEAR(score.logprobs[1], hit, 1e-12);
  EXPECT_NEAR(score.logprobs[2], miss, 1e-12);
  EXPECT_NEAR(score.loss, -(2 * hit + miss) / 3, 1e-12);
}

TEST(Scorer, LongSequencesPassInPiecesThatKnowWhatCameBefore) {
  const std::int64_t vocab_size = 1 << 22;  // 16 tokens reach the limit on logits in memory
  RunningSumModel model(vocab_size, 3);
  Ids ids{1};  // each token is the sum of those before it: 1, 1, 2, 4, …
  for (std::int64_t sum = 1; ids.size() < 20; sum *= 2) ids.push_back(sum);
  const Score score = score_tokens(model, ids, "ids");
  EXPECT_EQ(model.calls, (std::vector<SuccessorModel::Call>{{0, 16}, {16, 3}}));
  ASSERT_EQ(score.logprobs.size(), 19u);
  for (const double logprob : score.logprobs)
    EXPECT_NEAR(logprob, 3 - std::log(std::exp(3.0) + vocab_size - 1), 1e-6);
}

TEST(Scorer, RefusesTheTextOfAnEncoderThatTheModelLacks) {
  SuccessorModel model(10);
  EXPECT_THAT(message_of([&] {
                score_tokens(model, Ids{4, 5}, "line 7", Ids{1});
              }),
              HasSubstr("line 7: it has a text for an encoder, and the model has no encoder"));
}

TEST(Scorer, OneTokenHasNoScore) {
  SuccessorModel model(10);
  const Score score = score_tokens(model, Ids{4}, "ids");
  EXPECT_TRUE(score.logprobs.empty());
  EXPECT_TRUE(std::isnan(score.loss));
}

TEST(Scorer, LogitsThatAreNotFiniteAreRefused) {
  SuccessorModel model(10, /*sharpness=*/NAN);
  try {
    score_tokens(model, Ids{4, 5, 6}, "line 7");
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("line 7, ids[1]: the model's logit of token 0: NaN"),
              std::string::npos)
        << error.what();
  }
}

TEST(Scorer, BadIdsNameTheirSource) {
  SuccessorModel model(10);
  model.mutable_config().position_embedding_type = PositionEmbedding::learned_absolute;
  model.mutable_config().max_position_embeddings = 3;
  for (const Ids& ids : {Ids{}, Ids{1, 10}, Ids{-1}, Ids{1, 2, 3, 4, 5}}) {
    try {
      score_tokens(model, ids, "line 7");
      ADD_FAILURE() << "accepted " << ids.size() << " ids";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("line 7"), std::string::npos) << error.what();
      if (ids.empty()) {
        EXPECT_NE(std::string(error.what()).find("an empty list"), std::string::npos);
      }
    }
  }
}

TEST(Scorer, GivesTargetsTheirLogProbabilitiesAndTheLikeliestTokens) {
  SuccessorModel model(10, /*sharpness=*/2);
  const double hit = 2 - std::log(std::exp(2.0) + 9), miss = -std::log(std::exp(2.0) + 9);
  const std::vector<ScoredText> texts{{{4, 5, 6, 0}, 2}, {{1, 2}, 1}, {{7, 7, 7, 8, 9}, 3}};
  std::size_t num_done = 0;
  const auto scores = score_texts(
      model, texts, {.num_best = 1, .on_progress = [&](std::size_t done) { num_done = done; }});
  EXPECT_EQ(model.calls, (Calls{{0, 3}, {0, 1}, {0, 4}})) << "one pass";
  EXPECT_EQ(num_done, 3u);
  ASSERT_EQ(scores.size(), 3u);
  const std::vector<std::vector<double>> expected{{hit, miss}, {hit}, {miss, hit, hit}};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(scores[i].size(), expected[i].size());
    for (std::size_t k = 0; k < scores[i].size(); ++k) {
      const SampledToken& token = scores[i][k];
      EXPECT_EQ(token.id, texts[i].ids[texts[i].ids.size() - scores[i].size() + k]);
      EXPECT_NEAR(token.logprob, expected[i][k], 1e-12);
      ASSERT_EQ(token.best.size(), 1u);
      EXPECT_EQ(token.best[0].id == token.id, expected[i][k] == hit);
      EXPECT_NEAR(token.best[0].logprob, hit, 1e-12);
    }
  }
}

TEST(Scorer, TheBeginningOfALongTextHasNoLogits) {
  const std::int64_t vocab_size = 1 << 22;  // 16 tokens reach the limit on logits in memory
  RunningSumModel model(vocab_size, 3);
  Ids ids{1};  // each token is the sum of those before it: 1, 1, 2, 4, …
  for (std::int64_t sum = 1; ids.size() < 20; sum *= 2) ids.push_back(sum);
  const auto scores = score_texts(model, std::vector<ScoredText>{{ids, 18}});
  EXPECT_EQ(model.calls, (Calls{{0, 17}, {17, 2}})) << "the first needs no logits";
  const Score whole = score_tokens(model, ids, "ids");
  ASSERT_EQ(scores[0].size(), 18u);
  for (std::size_t i = 0; i < 18; ++i) EXPECT_EQ(scores[0][i].logprob, whole.logprobs[i + 1]);
}

TEST(Scorer, TextsThatDoNotFitAPassAreInLaterOnes) {
  SuccessorModel model(1 << 22);  // a pass has at most 16 logits
  const std::vector<ScoredText> texts{
      {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 9}, {{1, 2, 3, 4, 5, 6, 7, 8}, 7}, {{3, 4, 5}, 2}};
  std::vector<std::size_t> done;
  const auto scores =
      score_texts(model, texts, {.on_progress = [&](std::size_t count) { done.push_back(count); }});
  EXPECT_THAT(done, testing::ElementsAre(2, 3));
  EXPECT_EQ(model.calls, (Calls{{0, 9}, {0, 7}, {0, 2}}));
  EXPECT_EQ(scores[1].size(), 7u);
}

TEST(Scorer, TheLastTokenNeedsNoPosition) {
  SuccessorModel model(10);
  model.mutable_config().position_embedding_type = PositionEmbedding::learned_absolute;
  model.mutable_config().max_position_embeddings = 3;
  EXPECT_EQ(score_texts(model, std::vector<ScoredText>{{{1, 2, 3, 4}, 3}})[0].size(), 3u);
  const auto message = [&](Ids ids) {
    return message_of([&] { score_texts(model, std::vector<ScoredText>{{ids, 1, "line 7"}}); });
  };
  EXPECT_THAT(message({1, 2, 3, 4, 5}), HasSubstr("line 7"));
  EXPECT_THAT(message({1, 10}), HasSubstr("line 7"));
}

TEST(Scorer, TextsThatBeginAlikeShareWhatIsNotScored) {
  SuccessorModel model(10, /*sharpness=*/2);
  std::vector<ScoredText> texts(2, {Ids(301, 4), 20});
  texts[1].ids.back() = 5;
  const auto scores = score_texts(model, texts, {.engine = {.scheduler = {.max_running = 1}}});
  EXPECT_EQ(model.calls, (Calls{{0, 300}, {256, 44}})) << "two blocks of 128 are found";
  const double hit = 2 - std::log(std::exp(2.0) + 9), miss = -std::log(std::exp(2.0) + 9);
  EXPECT_NEAR(scores[0].back().logprob, miss, 1e-12);
  EXPECT_NEAR(scores[1].back().logprob, hit, 1e-12);
  EXPECT_EQ(scores[1].size(), 20u);
  const std::vector<ScoredText> all(2, {Ids(301, 4), 300});
  model.calls.clear();
  score_texts(model, all, {.engine = {.scheduler = {.max_running = 1}}});
  EXPECT_EQ(model.calls, (Calls{{0, 300}, {0, 300}}));
}

}  // namespace
}  // namespace megatron
