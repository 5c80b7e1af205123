#include "megatron/inference/score_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "inference/successor_model.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/inference/scorer.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using Calls = std::vector<SuccessorModel::Call>;

TEST(ScoreTexts, GivesTargetsTheirLogProbabilitiesAndTheLikeliestTokens) {
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

TEST(ScoreTexts, ALongTextPassesInPiecesThatKnowWhatCameBefore) {
  const std::int64_t vocab_size = 1 << 22;  // 16 tokens reach the limit on logits in memory
  RunningSumModel model(vocab_size, 3);
  std::vector<std::int64_t> ids{1};  // each token is the sum of those before it: 1, 1, 2, 4, …
  for (std::int64_t sum = 1; ids.size() < 20; sum *= 2) ids.push_back(sum);
  const auto scores = score_texts(model, std::vector<ScoredText>{{ids, 18}});
  EXPECT_EQ(model.calls, (Calls{{0, 16}, {16, 3}}));
  const Score whole = score_tokens(model, ids, "ids");
  ASSERT_EQ(scores[0].size(), 18u);
  for (std::size_t i = 0; i < 18; ++i) EXPECT_EQ(scores[0][i].logprob, whole.logprobs[i + 1]);
}

TEST(ScoreTexts, TextsThatDoNotFitAPassAreInLaterOnes) {
  SuccessorModel model(1 << 22);  // a pass has at most 16 tokens
  const std::vector<ScoredText> texts{
      {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 1}, {{1, 2, 3, 4, 5, 6, 7, 8}, 7}, {{3, 4}, 1}};
  std::vector<std::size_t> done;
  const auto scores =
      score_texts(model, texts, {.on_progress = [&](std::size_t count) { done.push_back(count); }});
  EXPECT_THAT(done, testing::ElementsAre(2, 3));
  EXPECT_EQ(model.calls, (Calls{{0, 9}, {0, 7}, {0, 1}}));
  EXPECT_EQ(scores[1].size(), 7u);
}

TEST(ScoreTexts, TheLastTokenNeedsNoPosition) {
  SuccessorModel model(10);
  model.mutable_config().position_embedding_type = PositionEmbedding::learned_absolute;
  model.mutable_config().max_position_embeddings = 3;
  EXPECT_EQ(score_texts(model, std::vector<ScoredText>{{{1, 2, 3, 4}, 3}})[0].size(), 3u);
  const auto message = [&](std::vector<std::int64_t> ids) {
    return message_of([&] { score_texts(model, std::vector<ScoredText>{{ids, 1, "line 7"}}); });
  };
  EXPECT_THAT(message({1, 2, 3, 4, 5}), HasSubstr("line 7"));
  EXPECT_THAT(message({1, 10}), HasSubstr("line 7"));
}

TEST(ScoreTexts, LogitsThatAreNotFiniteAreRefused) {
  SuccessorModel model(10, /*sharpness=*/NAN);
  EXPECT_THAT(message_of([&] {
                score_texts(model, std::vector<ScoredText>{{{4, 5, 6}, 1, "line 7"}});
              }),
              HasSubstr("line 7, ids[2]: the model's logit of token 0: NaN"));
}

}  // namespace
}  // namespace megatron
