#include "megatron/planner/choose_activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace megatron {
namespace {

using Kinds = std::vector<std::vector<ActivationChoice>>;

/// Tries all combinations.
std::optional<ChosenActivations> exhaustive(const std::vector<std::size_t>& kinds,
                                            const Kinds& choices, std::int64_t available) {
  std::optional<ChosenActivations> best;
  std::vector<std::size_t> tried(kinds.size(), 0);
  for (;;) {
    ChosenActivations sum{.choices = tried};
    std::int64_t in_backward = 0;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const ActivationChoice& choice = choices[kinds[i]][tried[i]];
      sum.bytes += choice.kept_bytes;
      sum.more_ns += choice.more_ns;
      in_backward = std::max(in_backward, choice.backward_bytes);
    }
    sum.bytes += in_backward;
    if (sum.bytes <= available &&
        (!best || std::tuple(sum.more_ns, sum.bytes) < std::tuple(best->more_ns, best->bytes)))
      best = sum;
    std::size_t i = 0;
    while (i < kinds.size() && ++tried[i] == choices[kinds[i]].size()) tried[i++] = 0;
    if (i == kinds.size()) return best;
  }
}

TEST(ChooseActivations, EqualsTheBestOfAllCombinations) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % unsigned(n)); };
  for (int round = 0; round < 400; ++round) {
    Kinds choices(2);
    for (auto& kind : choices) {
      kind.resize(static_cast<std::size_t>(1 + below(4)));
      for (ActivationChoice& choice : kind) choice = {below(40), below(30), below(50)};
    }
    std::vector<std::size_t> kinds(static_cast<std::size_t>(1 + below(6)));
    for (std::size_t& kind : kinds) kind = static_cast<std::size_t>(below(2));
    const std::int64_t available = below(200);
    const auto expected = exhaustive(kinds, choices, available),
               found = choose_activations(kinds, choices, available);
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!found) continue;
    EXPECT_EQ(found->more_ns, expected->more_ns);
    EXPECT_EQ(found->bytes, expected->bytes);
  }
}

TEST(ChooseActivations, ManyEqualLayersAreNoProblem) {
  const Kinds choices{{{100, 0, 0}, {80, 1, 3}, {55, 2, 9}, {20, 60, 31}, {0, 90, 70}}};
  const std::vector<std::size_t> kinds(200, 0);
  const auto found = choose_activations(kinds, choices, 9000);
  ASSERT_TRUE(found);
  EXPECT_LE(found->bytes, 9000);
}

TEST(ChooseActivations, NothingIsChosenWhenNothingFits) {
  EXPECT_FALSE(choose_activations({0, 0}, {{{10, 5, 0}, {6, 0, 1}}}, 11));
  EXPECT_TRUE(choose_activations({0, 0}, {{{10, 5, 0}, {6, 0, 1}}}, 12));
}

}  // namespace
}  // namespace megatron
