#include "megatron/inference/sampling/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "inference/chi_square.h"
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
  EXPECT_NE(message({.min_p = -0.1}).find("--min-p"), std::string::npos);
  EXPECT_NE(message({.typical_p = 1.1}).find("--typical-p"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = 0}).find("--repetition-penalty"), std::string::npos);
  EXPECT_NE(message({.presence_penalty = 3}).find("--presence-penalty"), std::string::npos);
  EXPECT_NE(message({.frequency_penalty = -3}).find("--frequency-penalty"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{1, 101}}}).find("--logit-bias"), std::string::npos);
  EXPECT_NE(message({.min_new_tokens = 129}).find("--min-new-tokens"), std::string::npos);
  EXPECT_NE(message({.stop = {""}}).find("--stop"), std::string::npos);
  EXPECT_NE(message({.n = 3, .best_of = 2}).find("--best-of"), std::string::npos);
  EXPECT_NE(message({.n = 3, .num_beams = 2}).find("--n"), std::string::npos);
  const std::string all = message({.temperature = -1, .top_k = -1, .num_beams = 0});
  for (const char* flag : {"--temperature", "--top-k", "--num-beams"})
    EXPECT_NE(all.find(flag), std::string::npos);
  EXPECT_EQ(message({}), "no error");
  EXPECT_THROW(check_sampling_options({.logit_bias = {{9, 1}}}, 9), UserError);
  EXPECT_NO_THROW(check_sampling_options({.logit_bias = {{8, 1}}}, 9));
}

TEST(Sampling, DrawsDependOnSeedPromptAndPositionAlone) {
  EXPECT_EQ(sampling_uniform(7, {1, 2}), sampling_uniform(7, {1, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2}), sampling_uniform(8, {1, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2}), sampling_uniform(7, {2, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2}), sampling_uniform(7, {1, 3}));
}

/// Draws 20,000 tokens. The seeds are fixed, so the draws are too.
std::vector<std::int64_t> drawn_counts(const std::vector<float>& logits,
                                       const SamplingParams& params) {
  std::vector<std::int64_t> counts(logits.size());
  for (std::uint64_t draw = 0; draw < 20000; ++draw)
    ++counts[static_cast<std::size_t>(sample_token(logits, params, {draw % 13, draw / 13}))];
  return counts;
}

std::vector<double> normalized(std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(Sampling, DrawsFollowTheDistribution) {
  const std::vector<double> p = {0.05, 0.4, 0.02, 0.13, 0.1, 0.3};
  const auto expect = [&](const SamplingParams& params, const std::vector<double>& weights) {
    expect_distribution(drawn_counts(logs(p), params), normalized(weights));
  };
  expect({.seed = 1}, p);
  expect({.top_k = 3, .seed = 2}, {0, 0.4, 0, 0.13, 0, 0.3});
  expect({.top_p = 0.6, .seed = 3}, {0, 0.4, 0, 0, 0, 0.3});
  std::vector<double> squared;
  for (const double x : p) squared.push_back(x * x);
  expect({.temperature = 0.5, .seed = 4}, squared);
  expect({.min_p = 0.2, .seed = 5}, {0, 0.4, 0, 0.13, 0.1, 0.3});
  // The entropy is 1.45; −log p deviates by 1.54, 0.53, 2.46, 0.59, 0.85 and 0.25.
  expect({.typical_p = 0.5, .seed = 6}, {0, 0.4, 0, 0, 0, 0.3});
  expect({.typical_p = 0.75, .seed = 7}, {0, 0.4, 0, 0.13, 0, 0.3});
  expect({.top_k = 4, .min_p = 0.3, .seed = 8}, {0, 0.4, 0, 0.13, 0, 0.3});
}

TEST(Sampling, MinPKeepsTokensAtItsBorder) {
  const std::vector<float> logits = {0, 1, 1, 0.5f};
  EXPECT_EQ(kept_ids(logits, {.min_p = 1}), Ids({1, 2}));
  EXPECT_EQ(kept_ids(logits, {.min_p = 1e-9}), Ids({1, 2, 3, 0}));
}

TEST(Sampling, TypicalKeepsTiesWithTheLast) {
  EXPECT_EQ(kept_ids({0, 0, 0, 0}, {.typical_p = 0.1}), Ids({0, 1, 2, 3}));
}

/// The distribution by sorting the whole vocabulary.
std::vector<TokenProbability> sorted_distribution(const std::vector<float>& logits,
                                                  const SamplingParams& params) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  std::vector<TokenProbability> result;
  double sum = 0;
  for (const std::size_t id : order) {
    const auto k = static_cast<std::size_t>(params.top_k);
    if (k > 0 && k < order.size() && logits[id] < logits[order[k - 1]]) break;
    const double weight =
        std::exp((logits[id] - static_cast<double>(logits[order[0]])) / params.temperature);
    result.push_back({static_cast<std::int64_t>(id), weight});
    sum += weight;
  }
  for (TokenProbability& one : result) one.probability /= sum;
  if (params.top_p == 0 || params.top_p == 1) return result;
  double before = 0;
  std::size_t kept = 0;
  while (kept < result.size() && (kept == 0 || before <= params.top_p))
    before += result[kept++].probability;
  result.resize(kept);
  for (TokenProbability& one : result) one.probability /= before;
  return result;
}

TEST(Sampling, RanksAsASortOfTheWholeVocabularyDoes) {
  std::mt19937 random(3);
  for (const std::size_t size : {2, 50, 1000, 5000}) {
    for (const double spread : {0.0, 0.01, 1.0, 10.0, 300.0}) {
      std::normal_distribution<double> normal(0, 1);
      std::vector<float> logits;
      for (std::size_t i = 0; i < size; ++i) {
        // Half of the logits are on a grid, so that many are equal.
        const double x = normal(random);
        logits.push_back(static_cast<float>(spread * (i % 2 == 0 ? x : std::round(4 * x) / 4)));
      }
      for (std::size_t i = 1; i < size; i += 7) logits[i] = -std::numeric_limits<float>::infinity();
      for (const double temperature : {0.1, 1.0, 20.0}) {
        for (const auto& [top_k, top_p] : std::initializer_list<std::pair<std::int64_t, double>>{
                 {0, 0}, {40, 0}, {0, 0.9}, {300, 0.5}, {0, 0.999}}) {
          const SamplingParams params{.temperature = temperature, .top_k = top_k, .top_p = top_p};
          const auto ours = sampling_distribution(logits, params),
                     sorted = sorted_distribution(logits, params);
          ASSERT_EQ(ours.size(), sorted.size()) << size << " " << spread << " " << temperature;
          for (std::size_t i = 0; i < ours.size(); ++i) {
            ASSERT_EQ(ours[i].id, sorted[i].id);
            ASSERT_NEAR(ours[i].probability, sorted[i].probability, 1e-12);
          }
          for (std::uint64_t position = 0; position < 20; ++position) {
            const SamplingSite site{size, position};
            ASSERT_EQ(sample_token(logits, params, site),
                      draw_token(sorted,
                                 sampling_uniform(static_cast<std::uint64_t>(params.seed), site)));
          }
        }
      }
    }
  }
}

TEST(Sampling, BestTokensAreRankedWithTiesById) {
  EXPECT_EQ(best_tokens(std::vector<float>{1, 3, -400, 3, 2}, 3), Ids({1, 3, 4}));
  EXPECT_EQ(best_tokens(std::vector<float>{1, 3, -400, 3, 2}, 9), Ids({1, 3, 4, 0, 2}));
}

TEST(Sampling, SamplesOfAPromptDrawDifferentNumbers) {
  EXPECT_EQ(sampling_uniform(7, {1, 2, 0}), sampling_uniform(7, {1, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2, 1}), sampling_uniform(7, {1, 2}));
  EXPECT_NE(sampling_uniform(7, {1, 2}, "acceptance"), sampling_uniform(7, {1, 2}));
}

}  // namespace
}  // namespace megatron
