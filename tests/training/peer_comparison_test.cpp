#include "megatron/training/observability/stragglers/peer_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Times = std::vector<std::vector<double>>;  // [rank][step]

/// Returns the ranks that count as slow; a step takes 10 s.
std::vector<std::size_t> slow_ranks(const Times& own_s, double step_s = 10) {
  std::vector<std::size_t> slow;
  const std::vector<PeerComparison> ranks = compare_with_peers(own_s, step_s);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].is_slow) slow.push_back(rank);
  }
  return slow;
}

/// Returns `steps` equal steps of ranks with these times.
Times constant(const std::vector<double>& times, std::size_t steps = 15) {
  Times own_s;
  for (const double time : times) own_s.emplace_back(steps, time);
  return own_s;
}

/// Times of ranks whose noise is lognormal: `common` multiplies a step of all ranks alike, `own`
/// that of one rank. One step in twenty of a rank takes ten times as long.
class NoisyRanks {
 public:
  explicit NoisyRanks(double common, double own) : common_(0, common), own_(0, own) {}
  Times steps(const std::vector<double>& factors) {
    Times own_s(factors.size());
    for (int step = 0; step < 15; ++step) {
      const double all = std::exp(common_(random_));
      for (std::size_t rank = 0; rank < factors.size(); ++rank) {
        const double outlier = outlier_(random_) ? 10 : 1;
        own_s[rank].push_back(factors[rank] * all * outlier * std::exp(own_(random_)));
      }
    }
    return own_s;
  }

 private:
  std::mt19937 random_{1234};
  std::normal_distribution<double> common_, own_;
  std::bernoulli_distribution outlier_{0.05};
};

TEST(PeerComparison, ComparesWithTheMedianOfTheOthers) {
  const auto four = compare_with_peers(constant({2, 1, 1, 4}), 10);
  EXPECT_DOUBLE_EQ(four[0].own_s, 2);
  EXPECT_DOUBLE_EQ(four[0].peers_s, 1);
  EXPECT_DOUBLE_EQ(four[0].ratio, 2);
  EXPECT_DOUBLE_EQ(four[0].excess_s, 1);
  EXPECT_DOUBLE_EQ(four[1].ratio, 0.5) << "the others are 1, 2, 4";
  EXPECT_DOUBLE_EQ(four[3].ratio, 4) << "the others are 1, 1, 2";
  const auto three = compare_with_peers(constant({3, 1, 2}), 10);
  EXPECT_DOUBLE_EQ(three[0].ratio, 2) << "the mean of 1 and 2";
  EXPECT_DOUBLE_EQ(three[2].ratio, 1) << "the mean of 1 and 3";
}

TEST(PeerComparison, RatiosAreThoseOfTheSameStep) {
  Times own_s{{}, {}};
  for (int step = 0; step < 15; ++step) {
    own_s[0].push_back(1.0 + step);
    own_s[1].push_back(1.5 * (1.0 + step));
  }
  const auto ranks = compare_with_peers(own_s, 10);
  EXPECT_DOUBLE_EQ(ranks[1].ratio, 1.5);
  EXPECT_DOUBLE_EQ(ranks[1].own_s, 12) << "the eighth of fifteen steps";
  EXPECT_DOUBLE_EQ(ranks[1].peers_s, 8);
  EXPECT_THAT(slow_ranks(own_s), ElementsAre(1));
}

TEST(PeerComparison, FindsARankThatTakesAFifthLonger) {
  for (const std::vector<double>& factors :
       {std::vector<double>{1, 1, 1.2, 1}, {1, 1, 1.2, 1, 1, 1, 1, 1}}) {
    NoisyRanks noisy(0.5, 0.03);
    int found = 0;
    for (int trial = 0; trial < 300; ++trial) {
      const std::vector<std::size_t> slow = slow_ranks(noisy.steps(factors));
      found += slow == std::vector<std::size_t>{2};
      ASSERT_TRUE(slow.empty() || slow == std::vector<std::size_t>{2});
    }
    EXPECT_GE(found, 290) << "the next steps show it otherwise";
  }
}

// Noise as of four ranks on two busy CPUs (0.15), and the little of ranks on CPUs of their own.
TEST(PeerComparison, NoiseAccusesNobody) {
  for (const double own : {0.03, 0.15}) {
    NoisyRanks noisy(0.5, own);
    for (int trial = 0; trial < 3000; ++trial)
      ASSERT_THAT(slow_ranks(noisy.steps({1, 1, 1, 1})), IsEmpty()) << own << ": " << trial;
  }
}

TEST(PeerComparison, AFewSlowStepsAccuseNobody) {
  Times own_s = constant({1, 1, 1});
  for (std::size_t step = 0; step < 11; ++step) own_s[1][step] = 2;
  EXPECT_THAT(slow_ranks(own_s), IsEmpty()) << "11 of 15 steps";
  own_s[1][11] = 2;
  EXPECT_THAT(slow_ranks(own_s), ElementsAre(1)) << "12 of 15 steps";
}

TEST(PeerComparison, NeedsAFifteenthMoreTime) {
  EXPECT_THAT(slow_ranks(constant({1, 1.14, 1})), IsEmpty());
  EXPECT_THAT(slow_ranks(constant({1, 1.16, 1})), ElementsAre(1));
}

TEST(PeerComparison, TheFasterOfTwoIsNotSlow) {
  EXPECT_THAT(slow_ranks(constant({1, 2})), ElementsAre(1));
  EXPECT_THAT(slow_ranks(constant({2, 1})), ElementsAre(0));
}

TEST(PeerComparison, ARankAloneIsNotCompared) {
  EXPECT_THAT(slow_ranks(constant({5})), IsEmpty());
  EXPECT_THAT(slow_ranks({}), IsEmpty());
  EXPECT_THAT(slow_ranks(constant({1, 2}, 0)), IsEmpty());
}

TEST(PeerComparison, NeedsTwelveSteps) {
  EXPECT_THAT(slow_ranks(constant({1, 2, 1}, 11)), IsEmpty());
  EXPECT_THAT(slow_ranks(constant({1, 2, 1}, 12)), ElementsAre(1));
}

TEST(PeerComparison, TimeThatTheStepDoesNotMissIsIgnored) {
  EXPECT_THAT(slow_ranks(constant({1, 2, 1}), 101), IsEmpty());
  EXPECT_THAT(slow_ranks(constant({1, 2, 1}), 99), ElementsAre(1));
}

// Ratios to the median of the others: 1/1.1, 1/1.1, 1.1, 1.2/1.05, …; those of the peers of rank 4
// deviate by about 0.1 from their median, so 1.3 is within three deviations of them and 2 is not.
TEST(PeerComparison, PeersThatDifferThemselvesAreJudgedMildly) {
  EXPECT_THAT(slow_ranks(constant({1, 1.1, 0.9, 1.2, 1.3})), IsEmpty());
  EXPECT_THAT(slow_ranks(constant({1, 1.1, 0.9, 1.2, 2})), ElementsAre(4));
}

}  // namespace
}  // namespace megatron
