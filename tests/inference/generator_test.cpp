#include "megatron/inference/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "inference/byte_pieces.h"
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
  Generator generator(model, {.temperature = 0, .max_new_tokens = 100, .stop_token_ids = {7, 13}});
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
  Generator generator(model, {.temperature = 0, .max_new_tokens = 3, .stop_token_ids = {12}});
  const Ids first{20, 21}, second{10};
  std::vector<std::pair<std::size_t, std::int64_t>> streamed;
  const std::vector<std::vector<Generation>> results = generator.generate_all(
      std::vector<Prompt>{{first, 0}, {second, 1}},
      [&](std::size_t place, std::int64_t id) { streamed.emplace_back(place, id); });
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0][0].ids, Ids({22, 23, 24}));
  EXPECT_EQ(results[1][0].ids, Ids({11}));
  EXPECT_EQ(results[1][0].finish_reason, FinishReason::stop);
  EXPECT_EQ(streamed, (decltype(streamed){{0, 22}, {1, 11}, {0, 23}, {0, 24}}));
  EXPECT_EQ(model.calls,
            (std::vector<SuccessorModel::Call>{{0, 2}, {0, 1}, {2, 1}, {1, 1}, {3, 1}}));
}

TEST(Generator, NothingToGenerateRunsNothing) {
  SuccessorModel model(50);
  EXPECT_TRUE(Generator(model, {.max_new_tokens = 0}).generate(Ids{1}, 0).ids.empty());
  EXPECT_TRUE(model.calls.empty());
}

TEST(Generator, ChecksPromptsWithoutAPass) {
  SuccessorModel model(50);
  const Generator generator(model, {.max_new_tokens = 3},
                            {.scheduler = {.num_blocks = 1, .max_sequence_length = 5}});
  const Ids fits{1, 2}, is_long{1, 2, 3};
  EXPECT_NO_THROW(generator.check(std::vector<Prompt>{{fits, 0}, {fits, 1}}));
  EXPECT_THAT(
      message_of([&] {
        generator.check(std::vector<Prompt>{{fits, 0}, {is_long, 1}});
      }),
      testing::HasSubstr("prompt 2 of 3 tokens and up to 3 new ones: --inference-max-seq-length"));
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

TEST(Generator, MinimumOfTokensPutsTheEndOff) {
  SuccessorModel model(50);
  Generator generator(
      model,
      {.temperature = 0, .max_new_tokens = 10, .min_new_tokens = 3, .stop_token_ids = {12, 5}});
  const Generation result = generator.generate(Ids{10}, 0);
  EXPECT_EQ(result.ids, Ids({11, 0, 1, 2, 3, 4}));  // after 11 token 0 is the first of equals
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
}

TEST(Generator, StopStringsEndATextAndAreCutOff) {
  SuccessorModel model(6);
  const BytePieces tokenizer({"zero ", "one ", "two ", "three ", "four ", "five "});
  const auto generate = [&](std::vector<std::string> stops, std::int64_t minimum = 0) {
    return Generator(model,
                     {.temperature = 0,
                      .max_new_tokens = 8,
                      .min_new_tokens = minimum,
                      .stop = std::move(stops)},
                     {.tokenizer = &tokenizer})
        .generate(Ids{0}, 0);
  };
  const Generation found = generate({"hree fo"});
  EXPECT_EQ(found.ids, Ids({1, 2, 3, 4}));
  EXPECT_EQ(found.finish_reason, FinishReason::stop);
  EXPECT_EQ(found.num_cut_bytes, std::string("hree four ").size());
  EXPECT_EQ(generate({"two"}, 3).ids, Ids({1, 2, 3, 4, 5, 0, 1, 2}));
  const Generation none = generate({"six"});
  EXPECT_EQ(none.ids.size(), 8u);
  EXPECT_EQ(none.finish_reason, FinishReason::length);
  EXPECT_EQ(none.num_cut_bytes, 0u);
}

TEST(Generator, SamplesOfAPromptDifferAndTheFirstIsTheOneAlone) {
  SuccessorModel model(50, /*sharpness=*/0);
  const Ids ids{1};
  const Prompt prompt{ids, 2};
  const SamplingParams one{.seed = 5, .max_new_tokens = 10};
  SamplingParams three = one;
  three.n = 3;
  const auto texts = Generator(model, three).generate_all({&prompt, 1}).front();
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[0].ids, Generator(model, one).generate(ids, 2).ids);
  EXPECT_NE(texts[1].ids, texts[0].ids);
  EXPECT_NE(texts[2].ids, texts[1].ids);
}

TEST(Generator, SamplesThatShareTheCapacityOfExpertsHavePassesOfTheirOwn) {
  SuccessorModel model(50);
  model.mutable_config().moe.num_experts = 2;
  model.mutable_config().moe.expert_capacity_factor = 1;
  const Ids ids{1, 2};
  const Prompt prompt{ids};
  std::vector<std::pair<std::size_t, std::int64_t>> streamed;
  const auto texts =
      Generator(model, {.temperature = 0, .max_new_tokens = 2, .prompt_logprobs = true, .n = 2})
          .generate_all({&prompt, 1},
                        [&](std::size_t i, std::int64_t id) { streamed.emplace_back(i, id); })
          .front();
  EXPECT_EQ(streamed, (decltype(streamed){{0, 3}, {0, 4}, {1, 3}, {1, 4}}));
  EXPECT_EQ(model.calls, (std::vector<SuccessorModel::Call>{{0, 2}, {2, 1}, {0, 2}, {2, 1}}));
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].prompt_tokens.size(), 1u);
}

TEST(Generator, BestOfReturnsTheLargestMeanLogProbabilities) {
  SuccessorModel model(8, /*sharpness=*/2);
  const Ids ids{1};
  const Prompt prompt{ids};
  const SamplingParams all{
      .max_new_tokens = 6, .stop_token_ids = {0}, .return_log_probs = true, .n = 6};
  SamplingParams best = all;
  best.n = 2, best.best_of = 6;
  std::vector<Generation> texts = Generator(model, all).generate_all({&prompt, 1}).front();
  for (const Generation& text : texts) {
    ASSERT_EQ(text.tokens.size(), text.ids.size());
    double sum = 0;
    const double total = std::log(std::exp(2.0) + 7);
    std::int64_t last = 1;
    for (std::size_t i = 0; i < text.ids.size(); ++i) {
      const double logprob = (text.ids[i] == (last + 1) % 8 ? 2 : 0) - total;
      EXPECT_NEAR(text.tokens[i].logprob, logprob, 1e-9);
      sum += logprob;
      last = text.ids[i];
    }
    const bool has_stopped = text.finish_reason == FinishReason::stop;
    if (has_stopped) sum += (last == 7 ? 2 : 0) - total;
    EXPECT_NEAR(text.score, sum / static_cast<double>(text.ids.size() + has_stopped), 1e-9);
  }
  std::ranges::stable_sort(texts, std::ranges::greater(), &Generation::score);
  best.prompt_logprobs = true;
  const Ids longer{7, 1};
  const Prompt with_score{longer};
  const auto chosen = Generator(model, best).generate_all({&prompt, 1}).front();
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(Generator(model, best).generate_all({&with_score, 1}).front()[0].prompt_tokens.size(),
            1u);
  EXPECT_EQ(chosen[0].ids, texts[0].ids);
  EXPECT_EQ(chosen[1].ids, texts[1].ids);
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
