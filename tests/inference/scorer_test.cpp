#include "megatron/inference/scorer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "inference/successor_model.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

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
  for (const Ids& ids : {Ids{}, Ids{1, 10}, Ids{-1}, Ids{1, 2, 3, 4}}) {
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

}  // namespace
}  // namespace megatron
