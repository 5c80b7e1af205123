#include "megatron/inference/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/successor_model.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_enums.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

TEST(Generator, FeedsThePromptOnceAndThenOneTokenAStep) {
  SuccessorModel model(50);
  Generator generator(model, {.temperature = 0, .max_new_tokens = 4});
  Ids streamed;
  const Generation result =
      generator.generate(Ids{3, 9, 10}, 0, [&](std::int64_t id) { streamed.push_back(id); });
  EXPECT_EQ(result.ids, Ids({11, 12, 13, 14}));
  EXPECT_EQ(streamed, result.ids);
  EXPECT_EQ(result.finish_reason, FinishReason::length);
  EXPECT_EQ(model.calls, (std::vector<SuccessorModel::Call>{{0, 3}, {3, 1}, {4, 1}, {5, 1}}));
}

TEST(Generator, StopsAtAStopTokenAndLeavesItOut) {
  SuccessorModel model(50);
  Generator generator(
      model, {.temperature = 0, .max_new_tokens = 100, .stop_token_ids = {7, 13}});
  const Generation result = generator.generate(Ids{10}, 0);
  EXPECT_EQ(result.ids, Ids({11, 12}));
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
}

TEST(Generator, StopsWherePositionsEnd) {
  SuccessorModel model(50);
  model.mutable_config().position_embedding_type = PositionEmbedding::learned_absolute;
  model.mutable_config().max_position_embeddings = 5;
  Generator generator(model, {.temperature = 0, .max_new_tokens = 100});
  const Generation result = generator.generate(Ids{1, 2, 3}, 0);
  EXPECT_EQ(result.ids, Ids({4, 5, 6}));  // the last token is predicted at position 4
  EXPECT_EQ(result.finish_reason, FinishReason::max_positions);
  EXPECT_THROW(generator.generate(Ids{1, 2, 3, 4, 5, 6}, 0), UserError);
}

TEST(Generator, PromptsOfABatchEndOneByOne) {
  SuccessorModel model(50);
  Generator generator(
      model, {.temperature = 0, .max_new_tokens = 3, .stop_token_ids = {12}});
  const Ids first{20, 21}, second{10};
  std::vector<std::pair<std::size_t, std::int64_t>> streamed;
  const std::vector<Generation> results = generator.generate(
      std::vector<Prompt>{{first, 0}, {second, 1}},
      [&](std::size_t place, std::int64_t id) { streamed.emplace_back(place, id); });
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].ids, Ids({22, 23, 24}));
  EXPECT_EQ(results[1].ids, Ids({11}));
  EXPECT_EQ(results[1].finish_reason, FinishReason::stop);
  EXPECT_EQ(streamed, (decltype(streamed){{0, 22}, {1, 11}, {0, 23}, {0, 24}}));
  EXPECT_EQ(model.calls,
            (std::vector<SuccessorModel::Call>{{0, 2}, {0, 1}, {2, 1}, {1, 1}, {3, 1}}));
}

TEST(Generator, NothingToGenerateRunsNothing) {
  SuccessorModel model(50);
  EXPECT_TRUE(Generator(model, {.max_new_tokens = 0}).generate(Ids{1}, 0).ids.empty());
  EXPECT_TRUE(model.calls.empty());
}

TEST(Generator, AnotherPromptChangesNothing) {
  SuccessorModel model(50, /*sharpness=*/0);
  Generator generator(model, {.seed = 5, .max_new_tokens = 30});
  const Ids alone = generator.generate(Ids{1}, 3).ids;
  generator.generate(Ids{8, 9}, 0);
  EXPECT_EQ(generator.generate(Ids{1}, 3).ids, alone);
  EXPECT_NE(generator.generate(Ids{1}, 4).ids, alone);
}

TEST(Generator, RefusesWhatItCannotContinue) {
  SuccessorModel model(50);
  Generator generator(model, {.max_new_tokens = 3});
  EXPECT_THROW(generator.generate(Ids{}, 0), UserError);
  EXPECT_THAT(message_of([&] { generator.generate(Ids{50}, 0); }),
              testing::AllOf(testing::HasSubstr("50"), testing::HasSubstr("0 to 49")));
  EXPECT_THROW(generator.generate(Ids{-1}, 0), UserError);
  EXPECT_THROW(Generator(model, {.max_new_tokens = -1}), UserError);
  EXPECT_THROW(Generator(model, {.top_p = 2}), UserError);
}

}  // namespace
}  // namespace megatron
