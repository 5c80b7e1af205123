#include <gtest/gtest.h>

#include "inference/chi_square.h"
#include "megatron/inference/sampling/sampling.h"

namespace megatron {
namespace {

using Distribution = std::vector<TokenProbability>;

/// Two tokens of a target whose second distribution depends on the first token.
const Distribution kFirst{{2, 0.5}, {0, 0.3}, {1, 0.2}};
const std::vector<Distribution> kSecond{
    {{1, 0.6}, {0, 0.4}}, {{0, 0.7}, {2, 0.3}}, {{2, 0.4}, {1, 0.35}, {0, 0.25}}};

/// Counts the pairs of tokens of a text that begins at position 0 of many prompts. `draft` proposes
/// the token at a position after `before`, or −1 at position 0.
template <class Draft>
void expect_the_targets_pairs(const Draft& draft) {
  std::vector<std::int64_t> counts(9);
  std::vector<double> expected(9);
  for (const auto& [first, p] : kFirst)
    for (const auto& [second, q] : kSecond[static_cast<std::size_t>(first)])
      expected[static_cast<std::size_t>(3 * first + second)] = p * q;
  for (std::uint64_t prompt = 0; prompt < 40000; ++prompt) {
    const DraftToken first = draft(prompt, 0, -1), second = draft(prompt, 1, first.id);
    const std::int64_t a = draw_with_draft(first, kFirst, 7, {prompt, 0});
    const Distribution& target = kSecond[static_cast<std::size_t>(a)];
    // What was proposed behind another token is void.
    const std::int64_t b = a == first.id ? draw_with_draft(second, target, 7, {prompt, 1})
                                         : draw_token(target, sampling_uniform(7, {prompt, 1}));
    ++counts[static_cast<std::size_t>(3 * a + b)];
  }
  expect_distribution(counts, expected);
}

TEST(Speculative, DrawnDraftsGiveTheTargetsDistribution) {
  const std::vector<Distribution> drafts{
      {{0, 0.8}, {1, 0.1}, {2, 0.1}}, {{2, 0.9}, {0, 0.1}}, {{1, 0.5}, {0, 0.5}}};
  for (const Distribution& one : drafts) {
    expect_the_targets_pairs([&](std::uint64_t prompt, std::uint64_t position, std::int64_t) {
      const double uniform = sampling_uniform(7, {prompt, position}, "draft");
      return DraftToken{draw_token(one, uniform), one};
    });
  }
}

TEST(Speculative, PointMassesGiveTheTargetsDistribution) {
  expect_the_targets_pairs([](std::uint64_t prompt, std::uint64_t position, std::int64_t) {
    return DraftToken{static_cast<std::int64_t>((prompt + position) % 3)};
  });
}

TEST(Speculative, ADraftOfTheTargetsDistributionIsAlwaysAccepted) {
  for (std::uint64_t prompt = 0; prompt < 500; ++prompt) {
    const std::int64_t id = draw_token(kFirst, sampling_uniform(7, {prompt, 0}, "draft"));
    EXPECT_EQ(draw_with_draft({id, kFirst}, kFirst, 7, {prompt, 0}), id);
  }
}

TEST(Speculative, DraftsWithoutAChoiceGiveTheTextWithoutSpeculation) {
  for (std::uint64_t prompt = 0; prompt < 500; ++prompt)
    for (std::int64_t id = 0; id < 3; ++id)
      EXPECT_EQ(draw_with_draft({id}, kFirst, 7, {prompt, 5}),
                draw_token(kFirst, sampling_uniform(7, {prompt, 5})));
}

TEST(Speculative, ImpossibleDraftsAreRejected) {
  for (std::uint64_t prompt = 0; prompt < 100; ++prompt)
    EXPECT_NE(draw_with_draft({9, {{9, 1.0}}}, kFirst, 7, {prompt, 0}), 9);
}

}  // namespace
}  // namespace megatron
