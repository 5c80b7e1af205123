#include "megatron/inference/sampling/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "inference/successor_model.h"
#include "megatron/base/error.h"
#include "support/message_of.h"

namespace megatron {
namespace {

std::vector<std::int64_t> kept_ids(const std::vector<float>& logits,
                                   const SamplingParams& options) {
  std::vector<std::int64_t> ids;
  for (const TokenProbability& candidate : sampling_distribution(logits, options))
    ids.push_back(candidate.id);
  return ids;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> result;
  for (const double p : probabilities) result.push_back(static_cast<float>(std::log(p)));
  return result;
}

using Ids = std::vector<std::int64_t>;

TEST(Sampling, KeepsEveryTokenByDefault) {
  const auto candidates = sampling_distribution(logs({0.1, 0.6, 0.3}), {});
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].id, 1);
  EXPECT_NEAR(candidates[0].probability, 0.6, 1e-7);
  EXPECT_NEAR(candidates[1].probability, 0.3, 1e-7);
  EXPECT_NEAR(candidates[2].probability, 0.1, 1e-7);
}

TEST(Sampling, TemperatureDividesLogits) {
  const auto candidates = sampling_distribution(std::vector<float>{1, 3}, {.temperature = 2});
  EXPECT_NEAR(candidates[0].probability, 1 / (1 + std::exp(-1.0)), 1e-12);
}

TEST(Sampling, ZeroTemperatureAndTopOneAreGreedyWithTheLowestIdOnTies) {
  const std::vector<float> logits = {1, 5, 5, 2};
  EXPECT_EQ(kept_ids(logits, {.temperature = 0}), Ids({1}));
  EXPECT_EQ(kept_ids(logits, {.top_k = 1}), Ids({1}));
  for (std::uint64_t position = 0; position < 50; ++position)
    EXPECT_EQ(sample_token(logits, {.temperature = 0}, {0, position}), 1);
}

TEST(Sampling, TopKKeepsTiesWithTheKth) {
  const std::vector<float> logits = {0, 4, 2, 2, 1};
  EXPECT_EQ(kept_ids(logits, {.top_k = 2}), Ids({1, 2, 3}));
  EXPECT_EQ(kept_ids(logits, {.top_k = 4}), Ids({1, 2, 3, 4}));
  EXPECT_EQ(kept_ids(logits, {.top_k = 99}), Ids({1, 2, 3, 4, 0}));
}

TEST(Sampling, TopPKeepsTheTokenThatExceedsP) {
  const auto logits = logs({0.5, 0.25, 0.15, 0.1});
  EXPECT_EQ(kept_ids(logits, {.top_p = 0.4}), Ids({0}));
  EXPECT_EQ(kept_ids(logits, {.top_p = 0.6}), Ids({0, 1}));
  EXPECT_EQ(kept_ids(logits, {.top_p = 0.8}), Ids({0, 1, 2}));
  EXPECT_EQ(kept_ids(logits, {.top_p = 1.0}), Ids({0, 1, 2, 3}));
  EXPECT_EQ(kept_ids(logits, {.top_p = 1e-9}), Ids({0}));
}

// As Megatron-LM: a token goes only if those before it exceed p.
TEST(Sampling, TopPKeepsATokenWhenThoseBeforeItReachPExactly) {
  const std::vector<float> quarters = {0, 0, 0, 0};  // probabilities that add up without rounding
  EXPECT_EQ(kept_ids(quarters, {.top_p = 0.5}), Ids({0, 1, 2}));
  EXPECT_EQ(kept_ids(quarters, {.top_p = 0.25}), Ids({0, 1}));
}

TEST(Sampling, TopPIsTakenAmongWhatTopKLeft) {
  const auto candidates =
      sampling_distribution(logs({0.4, 0.3, 0.2, 0.1}), {.top_k = 2, .top_p = 0.6});  // 4/7 and 3/7
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_NEAR(candidates[0].probability, 4.0 / 7, 1e-7);
  EXPECT_EQ(kept_ids(logs({0.4, 0.3, 0.2, 0.1}), {.top_k = 2, .top_p = 0.5}), Ids({0}));
}

TEST(Sampling, MinusInfinityIsNeverDrawn) {
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {never, 0, never, 0};
  for (std::uint64_t position = 0; position < 200; ++position)
    EXPECT_EQ(sample_token(logits, {}, {0, position}) % 2, 1);
}

TEST(Sampling, DamagedLogitsAreAUserError) {
  const float infinity = std::numeric_limits<float>::infinity();
  SuccessorModel model(2);
  const std::vector<std::vector<float>> damaged{
      {0, std::nanf("")}, {0, infinity}, {-infinity, -infinity}};
  for (const std::vector<float>& logits : damaged)
    EXPECT_THROW(check_logits(model, logits, "prompt 1"), UserError);
  EXPECT_NO_THROW(check_logits(model, std::vector<float>{-infinity, 0}, "prompt 1"));
}

TEST(Sampling, OptionsOutOfRangeNameTheFlag) {
  const auto message = [](const SamplingParams& options) {
    return message_of([&] { check_sampling_options(options); });
  };
  EXPECT_NE(message({.temperature = -0.1}).find("--temperature"), std::string::npos);
  EXPECT_NE(message({.temperature = std::nan("")}).find("--temperature"), std::string::npos);
  EXPECT_NE(message({.top_k = -1}).find("--top-k"), std::string::npos);
  EXPECT_NE(message({.top_p = 1.5}).find("--top-p"), std::string::npos);
  EXPECT_EQ(message({}), "no error");
}

TEST(Sampling, DrawsDependOnSeedPromptAndPositionAlone) {
  EXPECT_EQ(sampling_uniform(7, {1, 2}), sampling_uniform(7, {1, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2}), sampling_uniform(8, {1, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2}), sampling_uniform(7, {2, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2}), sampling_uniform(7, {1, 3}));
}

/// Returns χ² of 20,000 draws against `probabilities`. The seeds are fixed, so the draws are too.
double chi_square(const std::vector<double>& probabilities, const std::vector<float>& logits,
                  const SamplingParams& options) {
  constexpr int kDraws = 20000;
  std::vector<int> counts(probabilities.size());
  for (int draw = 0; draw < kDraws; ++draw) {
    const SamplingSite site{static_cast<std::uint64_t>(draw % 13),
                            static_cast<std::uint64_t>(draw / 13)};
    ++counts[static_cast<std::size_t>(sample_token(logits, options, site))];
  }
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * kDraws;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << i;
    } else {
      sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  return sum;
}

TEST(Sampling, DrawsFollowTheDistribution) {  // critical values of χ² at 0.999
  const std::vector<double> p = {0.05, 0.4, 0.02, 0.13, 0.1, 0.3};
  EXPECT_LT(chi_square(p, logs(p), {.seed = 1}), 20.52);  // 5 degrees of freedom
  EXPECT_LT(
      chi_square({0, 0.4 / 0.83, 0, 0.13 / 0.83, 0, 0.3 / 0.83}, logs(p), {.top_k = 3, .seed = 2}),
      13.82);  // 2
  EXPECT_LT(chi_square({0, 4.0 / 7, 0, 0, 0, 3.0 / 7}, logs(p), {.top_p = 0.6, .seed = 3}),
            10.83);  // 1
  std::vector<double> squared(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) squared[i] = p[i] * p[i];
  const double sum = std::accumulate(squared.begin(), squared.end(), 0.0);
  for (double& value : squared) value /= sum;
  EXPECT_LT(chi_square(squared, logs(p), {.temperature = 0.5, .seed = 4}), 20.52);
}

}  // namespace
}  // namespace megatron
