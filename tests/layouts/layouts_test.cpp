// Layout never changes the mathematics: every family of models in every layout has the loss, the gradients and the curve of one rank.
//
// The fast set covers every pair of choices; MEGATRON_TEST_LAYOUTS=all takes every combination, and random ones from MEGATRON_TEST_SEED.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include "layouts/layout_run.h"

namespace megatron::layouts {
namespace {

constexpr std::int64_t kMostRanksAtOnce = 8;  ///< of the fast set

bool wants_all() {
  const char* wanted = std::getenv("MEGATRON_TEST_LAYOUTS");
  return wanted != nullptr && std::string(wanted) == "all";
}

/// W − W' = lr·gradient; a learning rate of 2¹⁴ leaves the gradient all the bits.
const std::vector<std::string> kOneSgdStep{"--optimizer",    "sgd", "--sgd-momentum", "0",     "--clip-grad",   "0",
                                           "--weight-decay", "0",   "--lr",           "16384", "--train-iters", "1"};
const std::vector<std::string> kTwentySteps{"--train-iters", "20", "--lr-warmup-iters", "5"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// One rank's run of a family; made once.
const Outcome& reference(std::size_t family, const std::vector<std::string>& more) {
  static std::map<std::pair<std::size_t, std::vector<std::string>>, Outcome> known;
  const auto key = std::pair(family, more);
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, train_case({family, {}}, more)).first;
  return found->second;
}

void expect_one_ranks_gradients(const Case& one) {
  const Outcome &expected = reference(one.family, kOneSgdStep), actual = train_case(one, kOneSgdStep);
  EXPECT_LE(curve_distance(actual.losses, expected.losses), 1e-6) << "loss of the first step";
  EXPECT_LE(curve_distance(actual.grad_norms, expected.grad_norms), 1e-5) << "gradient norm";
  ASSERT_EQ(actual.after.size(), expected.after.size());
  for (const auto& [name, after] : expected.after) {
    ASSERT_TRUE(actual.after.contains(name)) << name;
    EXPECT_TRUE(actual.before.at(name).equal(expected.before.at(name))) << name << " is drawn otherwise";
    const at::Tensor expected_gradient = expected.before.at(name) - after, gradient = actual.before.at(name) - actual.after.at(name);
    EXPECT_LE(relative_distance(gradient, expected_gradient), 1e-5) << "gradient of " << name;
  }
}

void expect_one_ranks_curve(const Case& one) {
  EXPECT_LE(curve_distance(train_case(one, kTwentySteps).losses, reference(one.family, kTwentySteps).losses), 1e-5) << "20 steps";
}

void expect_one_rank(const Case& one) {
  SCOPED_TRACE(families()[one.family].name + ", " + one.layout.text());
  expect_one_ranks_gradients(one);
  expect_one_ranks_curve(one);
}

TEST(Layouts, TrainAsOneRankDoes) {
  const std::vector<Case> cases = wants_all() ? all_cases() : pairwise_cases(kMostRanksAtOnce);
  RecordProperty("cases", static_cast<int>(cases.size()));
  for (const Case& one : cases) expect_one_rank(one);
}

TEST(Layouts, RandomOnesTrainAsOneRankDoes) {
  const char* given = std::getenv("MEGATRON_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
  SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<Case> all = all_cases();
  for (int i = 0; i < (wants_all() ? 50 : 2); ++i) expect_one_rank(all[random() % all.size()]);
}

/// Only the order of whole operations differs: loss and gradients have one rank's bits. Weights that two stages share are within rounding.
TEST(Layouts, EveryScheduleHasTheBitsOfOneRank) {
  for (std::size_t family = 0; family < families().size(); ++family) {
    const bool is_tied = !std::ranges::count(families()[family].flags, "--untie-embeddings-and-output-weights");
    for (std::size_t pipeline = 1; pipeline < pipelines().size(); ++pipeline) {
      const Case one{family, {.pipeline = pipeline}};
      SCOPED_TRACE(families()[family].name + ", " + one.layout.text());
      const Outcome &expected = reference(family, kOneSgdStep), actual = train_case(one, kOneSgdStep);
      EXPECT_EQ(actual.losses, expected.losses);
      for (const auto& [name, after] : expected.after) {
        const at::Tensor& mine = actual.after.at(name);
        if (is_tied && name == "embedding.word_embeddings.weight") {
          EXPECT_LE(relative_distance(mine, after), 1e-6) << name;
        } else {
          EXPECT_TRUE(mine.equal(after)) << name << " differs by " << relative_distance(mine, after);
        }
      }
    }
  }
}

/// Root mean square of a curve's relative distance to the exact one, over several seeds: that of a single run says little.
double rounding_distance(const std::function<std::vector<double>(const std::vector<std::string>& seed)>& curve, std::size_t family) {
  double squares = 0, points = 0;
  for (const char* seed : {"77", "78", "79", "80", "81"}) {
    const std::vector<double>&exact = reference(family, joined(kTwentySteps, {"--seed", seed})).losses, rounded = curve({"--seed", seed});
    for (std::size_t i = 0; i < exact.size(); ++i) squares += std::pow(rounded[i] / exact[i] - 1, 2);
    points += static_cast<double>(exact.size());
  }
  return std::sqrt(squares / points);
}

/// In bf16 rounding differs with the order of sums: the distance to the float32 run is what one rank's is, give or take.
TEST(Layouts, InBf16TheyAreNoFartherFromFp32) {
  const std::vector<std::string> bf16 = joined(kTwentySteps, {"--bf16"});
  std::vector<Case> cases = pairwise_cases(kMostRanksAtOnce);
  if (!wants_all()) cases.resize(2);
  for (const Case& one : cases) {
    SCOPED_TRACE(families()[one.family].name + ", " + one.layout.text());
    const double of_one_rank = rounding_distance([&](const auto& seed) { return reference(one.family, joined(bf16, seed)).losses; }, one.family);
    EXPECT_LE(rounding_distance([&](const auto& seed) { return train_case(one, joined(bf16, seed)).losses; }, one.family), 1.5 * of_one_rank);
  }
}

}  // namespace
}  // namespace megatron::layouts
