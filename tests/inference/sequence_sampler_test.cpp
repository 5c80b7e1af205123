// Penalties and filters against transformers (fixtures/sampling.json, written by
// tests/parity/make_sampling_fixtures.py) and vLLM's formulas.
#include "megatron/inference/sampling/sequence_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "inference/chi_square.h"
#include "megatron/base/error.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> penalized(const SamplingParams& params, const Ids& prompt, const Ids& text,
                             std::vector<float> logits) {
  SequenceSampler sampler(params, prompt, {});
  for (const std::int64_t id : text) sampler.append(id);
  sampler.apply_penalties(logits);
  return logits;
}

TEST(SequenceSampler, EqualsTheProcessorsOfTransformers) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/inference/fixtures/sampling.json");
  for (const Json& one : fixture.at("cases")) {
    const Json& options = one.at("options");
    SCOPED_TRACE(options.dump());
    const SamplingParams params{.temperature = options.value("temperature", 1.0),
                                .top_k = options.value("top_k", std::int64_t{0}),
                                .min_p = options.value("min_p", 0.0),
                                .typical_p = options.value("typical_p", 0.0),
                                .repetition_penalty = options.value("repetition_penalty", 1.0)};
    std::vector<float> logits;
    for (const Json& logit : one.at("logits"))
      logits.push_back(logit.is_null() ? -kInfinity : logit.get<float>());
    const auto expected = one.at("probabilities").get<std::vector<double>>();
    // What is seen counts in the prompt and in the text alike.
    const Ids seen = one.at("seen").get<Ids>();
    const auto middle = seen.begin() + 7;
    logits = penalized(params, Ids(seen.begin(), middle), Ids(middle, seen.end()), logits);
    std::vector<double> probabilities(logits.size());
    for (const auto& [id, probability] : sampling_distribution(logits, params))
      probabilities[static_cast<std::size_t>(id)] = probability;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(probabilities[i] > 0, expected[i] > 0) << i;
      EXPECT_NEAR(probabilities[i], expected[i], 1e-6) << i;  // theirs are float32
    }
  }
}

TEST(SequenceSampler, BadWordsAreNotCompleted) {
  const SamplingParams params{.bad_word_ids = {{0}, {1, 2, 3}, {9}}};
  const std::vector<float> logits(4, 1);
  const std::vector<float> one{-kInfinity, 1, 1, 1}, both{-kInfinity, 1, 1, -kInfinity};
  EXPECT_EQ(penalized(params, {1, 2}, {}, logits), one) << "the prompt is no part of the text";
  EXPECT_EQ(penalized(params, {}, {2, 1}, logits), one);
  EXPECT_EQ(penalized(params, {}, {1, 2}, logits), both);
  EXPECT_EQ(penalized(params, {}, {1, 1, 2}, logits), both);
  EXPECT_EQ(penalized(params, {}, {1, 2, 2}, logits), one);
}

TEST(SequenceSampler, PenaltiesFollowVllm) {
  const std::vector<float> logits = {2, -2, 1, 0, -kInfinity};
  EXPECT_EQ(penalized({.repetition_penalty = 2}, {0, 1, 0}, {3, 4}, logits),
            (std::vector<float>{1, -4, 1, 0, -kInfinity}));
  EXPECT_EQ(penalized({.presence_penalty = 0.5}, {0}, {1, 1, 4}, logits),
            (std::vector<float>{2, -2.5f, 1, 0, -kInfinity}));
  EXPECT_EQ(penalized({.frequency_penalty = -0.5}, {0}, {1, 1, 3}, logits),
            (std::vector<float>{2, -1, 1, 0.5f, -kInfinity}));
  // First the bias, then repetition, frequency and presence.
  EXPECT_EQ(penalized({.repetition_penalty = 2,
                       .presence_penalty = 1,
                       .frequency_penalty = 0.25,
                       .logit_bias = {{0, 4}, {2, -3}}},
                      {2}, {0, 0}, logits),
            (std::vector<float>{1.5f, -2, -4, 0, -kInfinity}));
}

TEST(SequenceSampler, StopTokensAreImpossibleBeforeTheMinimum) {
  const SamplingParams params{.temperature = 0, .min_new_tokens = 2, .stop_token_ids = {1, 7}};
  SequenceSampler sampler(params, Ids{0}, {});
  const std::vector<float> logits = {1, 9, 3};
  EXPECT_EQ(sampler.sample(logits, 1).id, 2);
  sampler.append(2);
  EXPECT_EQ(sampler.sample(logits, 2).id, 2);
  EXPECT_FALSE(sampler.may_stop());
  sampler.append(2);
  EXPECT_TRUE(sampler.may_stop());
  EXPECT_EQ(sampler.sample(logits, 3).id, 1);
  const SequenceSampler first(params, Ids{0}, {});
  EXPECT_THROW(first.sample(std::vector<float>{-kInfinity, 9}, 1), UserError);
}

TEST(SequenceSampler, LogprobsAreThoseOfTheModel) {
  const SamplingParams params{.temperature = 0, .logit_bias = {{2, 10}}, .logprobs = 2};
  const SequenceSampler sampler(params, Ids{0}, {});
  const SampledToken token =
      sampler.sample(std::vector<float>{std::log(0.5f), std::log(0.125f), std::log(0.375f)}, 1);
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, std::log(0.375), 1e-7);
  ASSERT_EQ(token.best.size(), 2u);
  EXPECT_EQ(token.best[0].id, 0);
  EXPECT_NEAR(token.best[0].logprob, std::log(0.5), 1e-7);
  EXPECT_EQ(token.best[1].id, 2);
  EXPECT_EQ(token.rank, 2);
}

TEST(SequenceSampler, DrawsFollowThePenalizedDistribution) {
  const SamplingParams params{.repetition_penalty = 1.5,
                              .presence_penalty = 0.5,
                              .frequency_penalty = 0.25,
                              .logit_bias = {{3, 1.0}}};
  SequenceSampler sampler(params, Ids{0, 1}, {});
  for (const std::int64_t id : {1, 2, 2}) sampler.append(id);
  const std::vector<float> logits = {1, 0.5f, 0.75f, -1, 0};
  std::vector<double> expected = {1 / 1.5, 0.5 / 1.5 - 0.75, 0.75 / 1.5 - 1, 0, 0};
  double sum = 0;
  for (double& x : expected) sum += x = std::exp(x);
  for (double& x : expected) x /= sum;
  std::vector<std::int64_t> counts(logits.size());
  for (std::int64_t position = 0; position < 20000; ++position)
    ++counts[static_cast<std::size_t>(sampler.sample(logits, position).id)];
  expect_distribution(counts, expected);
}

TEST(SequenceSampler, RowsOfABatchAreIndependent) {
  const SamplingParams params{.top_p = 0.9};
  constexpr std::size_t kVocabulary = 9000;
  std::vector<std::vector<float>> logits(5, std::vector<float>(kVocabulary));
  std::vector<SequenceSampler> samplers;
  for (std::uint64_t i = 0; i < logits.size(); ++i) {
    samplers.emplace_back(params, Ids{0}, SamplingSite{.prompt = i});
    for (std::size_t j = 0; j < kVocabulary; ++j)
      logits[i][j] = static_cast<float>((j * 37 + i * 11) % 101) / 20;
  }
  std::vector<SamplingRun> runs;
  for (std::size_t i = 0; i < logits.size(); ++i)
    runs.push_back({&samplers[i], logits[i], static_cast<std::int64_t>(i)});
  const auto sampled = sample_runs(runs, [](std::size_t, std::span<const float>, std::int64_t) {});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    ASSERT_EQ(sampled[i].tokens.size(), 1u);
    EXPECT_EQ(sampled[i].tokens.front().id, samplers[i].sample(logits[i], runs[i].position).id);
  }
}

// Rows behind a rejected draft, and behind a stop token, are not read.
TEST(SequenceSampler, DraftsAreAcceptedWhereTheyAreTheTokensWithoutThem) {
  const SamplingParams params{
      .temperature = 0, .frequency_penalty = 2, .stop_token_ids = {0}, .return_log_probs = true};
  const SequenceSampler sampler(params, Ids{3}, {});
  // Token 2 is the best at first, and token 1 once 2 has been said.
  const std::vector<float> logits = {0, 3, 4, 0, 3, 4, 9, 3, 4, kInfinity, 0, 0};
  std::vector<std::int64_t> checked;
  const auto sampled = [&](const std::vector<DraftToken>& drafts) {
    const SamplingRun run{&sampler, std::span(logits).first(3 * (drafts.size() + 1)), 5, drafts};
    checked.clear();
    const auto all =
        sample_runs({&run, 1}, [&](std::size_t, std::span<const float>, std::int64_t position) {
          checked.push_back(position);
        });
    Ids ids;
    for (const SampledToken& token : all.front().tokens) {
      ids.push_back(token.id);
      EXPECT_LT(token.logprob, 0);
    }
    return ids;
  };
  EXPECT_EQ(sampled({}), Ids({2}));
  EXPECT_EQ(sampled({{1}}), Ids({2}));
  EXPECT_EQ(checked, Ids({5}));
  EXPECT_EQ(sampled({{2}}), Ids({2, 1}));
  EXPECT_EQ(sampled({{2}, {2}, {0}}), Ids({2, 1}));
  EXPECT_EQ(checked, Ids({5, 6}));
  EXPECT_EQ(sampled({{2}, {1}, {0}}), Ids({2, 1, 0}));
  EXPECT_EQ(checked, Ids({5, 6, 7}));
  EXPECT_EQ(sampler.num_new_tokens(), 0);
}

}  // namespace
}  // namespace megatron
