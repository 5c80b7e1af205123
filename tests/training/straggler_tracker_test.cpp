#include "megatron/training/observability/stragglers/straggler_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

/// Two stages of four ranks each. Those of stage 1 take twice as long.
class StragglerTrackerTest : public testing::Test {
 protected:
  StragglerTrackerTest() : tracker_(places(), 1) {
    for (std::size_t rank = 0; rank < 8; ++rank) {
      OwnTimes& times = ranks_.emplace_back();
      const double factor = rank < 4 ? 1 : 2;
      times.own(StepPart::data) = 0.001;
      times.own(StepPart::forward) = 0.1 * factor;
      times.own(StepPart::backward) = 0.2 * factor;
      times.own(StepPart::optimizer) = 0.02;
      times.own(StepPart::other) = rank == 0 ? 0.01 : 0.001;
      times.waited_s = 0.01;
      times.cpu_s = 0.33 * factor;
    }
  }
  static std::vector<RankPlace> places() {
    std::vector<RankPlace> places;
    for (std::int64_t rank = 0; rank < 8; ++rank)
      places.push_back({.stage = rank / 4, .host = "host-" + std::to_string(rank / 2)});
    return places;
  }

  /// Adds the next five steps, in which `ranks_` takes effect from the iteration `onset` on.
  StragglerMetrics add_steps(std::int64_t onset = 0) {
    GatheredTimes times{.iterations = {}, .ranks = std::vector<std::vector<OwnTimes>>(8)};
    for (int step = 0; step < 5; ++step) {
      times.iterations.push_back(++iteration_);
      for (std::size_t rank = 0; rank < 8; ++rank)
        times.ranks[rank].push_back(iteration_ < onset ? before_.at(rank) : ranks_[rank]);
    }
    return tracker_.add(times);
  }

  std::int64_t iteration_ = 0;
  std::vector<OwnTimes> before_, ranks_;
  StragglerTracker tracker_;
};

TEST_F(StragglerTrackerTest, StagesAreNotComparedWithEachOther) {
  for (int i = 0; i < 6; ++i) EXPECT_THAT(add_steps().stragglers, IsEmpty());
  EXPECT_THAT(tracker_.take_changes(), IsEmpty());
}

TEST_F(StragglerTrackerTest, NamesRankHostPartAndFactor) {
  ranks_[6].own(StepPart::backward) *= 1.5;
  for (int i = 0; i < 2; ++i) EXPECT_THAT(add_steps().stragglers, IsEmpty());
  const StragglerMetrics metrics = add_steps();
  ASSERT_THAT(metrics.stragglers, SizeIs(1));
  EXPECT_EQ(metrics.stragglers[0].rank, 6);
  EXPECT_EQ(metrics.stragglers[0].host, "host-3");
  ASSERT_THAT(metrics.stragglers[0].parts, SizeIs(1));
  EXPECT_EQ(metrics.stragglers[0].parts[0].part, "backward");
  EXPECT_DOUBLE_EQ(metrics.stragglers[0].parts[0].own_s, 0.6);
  EXPECT_DOUBLE_EQ(metrics.stragglers[0].parts[0].peers_s, 0.4);
  EXPECT_DOUBLE_EQ(metrics.stragglers[0].parts[0].ratio, 1.5);
  EXPECT_THAT(
      tracker_.take_changes(),
      ElementsAre(StartsWith(
          "straggler: rank 6 on host-3 is slower than the 3 other ranks of pipeline stage 1: "
          "backward 600.00 ms a step, 1.50 times their 400.00 ms (medians of the wall time less "
          "the waits for other ranks, iterations 1 to 15). ")));
  EXPECT_THAT(tracker_.take_changes(), IsEmpty()) << "once";
  add_steps();
  EXPECT_THAT(tracker_.take_changes(), IsEmpty()) << "it is known";
}

TEST_F(StragglerTrackerTest, NamesWithinTwentySteps) {
  before_ = ranks_;
  ranks_[1].own(StepPart::forward) *= 1.2;
  for (std::int64_t onset = 21; onset <= 25; ++onset) {
    tracker_.clear();
    iteration_ = 0;
    while (add_steps(onset).stragglers.empty()) ASSERT_LT(iteration_, 100);
    EXPECT_LE(iteration_ - onset + 1, 20) << "first slow step " << onset;
    EXPECT_GE(iteration_, onset);
  }
}

TEST_F(StragglerTrackerTest, TheCostliestPartComesFirst) {
  ranks_[3].own(StepPart::optimizer) *= 3;
  ranks_[3].own(StepPart::forward) *= 1.5;
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(),
              ElementsAre(HasSubstr(": forward 150.00 ms a step, 1.50 times their 100.00 ms; "
                                    "optimizer 60.00 ms a step, 3.00 times their 20.00 ms (")));
}

TEST_F(StragglerTrackerTest, SaysWhenAnotherPartBecomesSlowAndWhenItIsOver) {
  before_ = ranks_;
  ranks_[3].own(StepPart::optimizer) *= 3;
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(), SizeIs(1));
  ranks_[3].own(StepPart::data) = 0.1;
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(),
              ElementsAre(AllOf(HasSubstr("data 100.00 ms"), HasSubstr("optimizer 60.00 ms"))));
  ranks_ = before_;
  add_steps();  // iterations 31 to 35
  add_steps();
  EXPECT_THAT(tracker_.take_changes(),
              ElementsAre("straggler: rank 3 on host-1 is no longer slower than its peers "
                          "(iterations 26 to 40)"))
      << "ten of fifteen steps";
}

// The noise of forward and backward cancels in their sum.
TEST_F(StragglerTrackerTest, NoiseOfThePartsDoesNotHideASlowRank) {
  for (const double slowness : {1.0, 1.25}) {
    tracker_.clear();
    StragglerMetrics metrics;
    for (int gather = 0; gather < 3; ++gather) {
      GatheredTimes times{.iterations = {}, .ranks = std::vector<std::vector<OwnTimes>>(8)};
      for (int step = 0; step < 5; ++step) {
        times.iterations.push_back(++iteration_);
        for (std::size_t rank = 0; rank < 8; ++rank) {
          OwnTimes& now = times.ranks[rank].emplace_back();
          const double noise = (iteration_ + static_cast<int>(rank)) % 2 == 0 ? 0.03 : -0.03;
          const double factor = rank == 5 ? slowness : 1;
          now.own(StepPart::forward) = (0.1 + noise) * factor;
          now.own(StepPart::backward) = (0.1 - noise) * factor;
        }
      }
      metrics = tracker_.add(times);
    }
    if (slowness == 1) {
      EXPECT_THAT(metrics.stragglers, IsEmpty());
      continue;
    }
    ASSERT_THAT(metrics.stragglers, SizeIs(1));
    EXPECT_EQ(metrics.stragglers[0].rank, 5);
    EXPECT_THAT(metrics.stragglers[0].parts, testing::Not(IsEmpty()));
  }
}

TEST_F(StragglerTrackerTest, ARankNearTheLimitIsNamedOnce) {
  ranks_[3].own(StepPart::forward) = 0.13;
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(), SizeIs(1));
  ranks_[3].own(StepPart::forward) = 0.111;
  for (int i = 0; i < 3; ++i) EXPECT_THAT(add_steps().stragglers, SizeIs(1));
  ranks_[3].own(StepPart::forward) = 0.13;
  for (int i = 0; i < 3; ++i) EXPECT_THAT(add_steps().stragglers, SizeIs(1));
  EXPECT_THAT(tracker_.take_changes(), IsEmpty());
  ranks_[3].own(StepPart::forward) = 0.109;
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(), ElementsAre(HasSubstr("no longer slower")));
}

TEST_F(StragglerTrackerTest, PartsWithUnequalWorkAreShownButNotCompared) {
  ranks_[2].own(StepPart::checkpoint) = 1;
  ranks_[2].own(StepPart::evaluation) = 1;
  ranks_[2].own(StepPart::other) = 1;
  for (int i = 0; i < 4; ++i) EXPECT_THAT(add_steps().stragglers, IsEmpty());
  EXPECT_THAT(tracker_.take_report(), HasSubstr("checkpoint: 0.00ms/0 .. 1000.00ms/2 | "));
}

TEST_F(StragglerTrackerTest, CauseIsABusyCpu) {
  for (OwnTimes& rank : ranks_) rank.cpu_wait_s = 0.005;
  ranks_[1].own(StepPart::backward) += 0.1;
  ranks_[1].cpu_wait_s = 0.06;
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(),
              ElementsAre(EndsWith("Its thread waited 60.00 ms a step for a CPU, those of its "
                                   "peers 5.00 ms: other processes use its CPU.")));
}

TEST_F(StragglerTrackerTest, CauseIsAStoppedThread) {
  ranks_[1].own(StepPart::backward) += 0.1;
  ranks_[1].cpu_s = 0.35;  // of the 0.422 s of its own
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(),
              ElementsAre(EndsWith("For 72.00 ms a step its thread did not want a CPU: it was "
                                   "stopped, or waited for a file or a device.")));
}

TEST_F(StragglerTrackerTest, CauseIsComputation) {
  ranks_[1].own(StepPart::backward) += 0.1;
  ranks_[1].cpu_s = 0.43;
  for (int i = 0; i < 3; ++i) add_steps();
  EXPECT_THAT(tracker_.take_changes(),
              ElementsAre(HasSubstr("Its thread had a CPU all that time")));
}

TEST_F(StragglerTrackerTest, ReportsFastestAndSlowestSinceTheLastReport) {
  ranks_[5].own(StepPart::forward) = 0.25;
  ranks_[2].own(StepPart::forward) = 0.05;
  ranks_[7].waited_s = 0.5;
  ranks_[4].waited_s = 0;
  add_steps();
  add_steps();
  EXPECT_EQ(tracker_.take_report(),
            "own time of a step, fastest and slowest ranks, iterations 1 to 10 | "
            "data: 1.00ms/0 .. 1.00ms/7 | forward: 50.00ms/2 .. 250.00ms/5 | "
            "backward: 200.00ms/0 .. 400.00ms/7 | optimizer: 20.00ms/0 .. 20.00ms/7 | "
            "other: 1.00ms/1 .. 10.00ms/0 | waiting: 0.00ms/4 .. 500.00ms/7 | stragglers: 0 |");
  EXPECT_EQ(tracker_.take_report(), "") << "nothing new";
  ranks_[2].own(StepPart::forward) = 0.075;
  add_steps();
  EXPECT_THAT(tracker_.take_report(),
              AllOf(HasSubstr("iterations 11 to 15 |"), HasSubstr("forward: 75.00ms/2 .. ")));
}

TEST_F(StragglerTrackerTest, ReportsAsManyRanksAsAskedFor) {
  tracker_ = StragglerTracker(places(), 3);
  for (std::size_t rank = 0; rank < 8; ++rank)
    ranks_[rank].own(StepPart::forward) = 0.001 * static_cast<double>(1 + rank * 3 % 8);
  const StragglerMetrics metrics = add_steps();
  EXPECT_THAT(tracker_.take_report(),
              HasSubstr("forward: 1.00ms/0 2.00ms/3 3.00ms/6 .. 6.00ms/7 7.00ms/2 8.00ms/5 |"));
  EXPECT_EQ(metrics.parts.at(1).part, "forward");
  EXPECT_EQ(metrics.parts.at(1).slowest.back().rank, 5);
  EXPECT_THAT(metrics.parts.at(1).fastest, SizeIs(3));
}

TEST_F(StragglerTrackerTest, ClearForgets) {
  ranks_[1].own(StepPart::backward) *= 2;
  for (int i = 0; i < 3; ++i) add_steps();
  tracker_.clear();
  EXPECT_THAT(tracker_.take_changes(), IsEmpty());
  EXPECT_EQ(tracker_.take_report(), "");
  for (int i = 0; i < 2; ++i) EXPECT_THAT(add_steps().stragglers, IsEmpty()) << "too few steps";
}

TEST(StragglerTracker, RanksAloneInTheirStageHaveNoPeers) {
  StragglerTracker alone({{.stage = 0, .host = "a"}, {.stage = 1, .host = "b"}}, 1);
  EXPECT_FALSE(alone.has_peers());
  GatheredTimes times{.iterations = {1}, .ranks = {{OwnTimes{}}, {OwnTimes{}}}};
  times.ranks[1][0].own(StepPart::forward) = 1;
  EXPECT_THAT(alone.add(times).stragglers, IsEmpty());
  EXPECT_THAT(alone.take_report(), Not(HasSubstr("stragglers")));
  EXPECT_TRUE(
      StragglerTracker({{.stage = 0, .host = "a"}, {.stage = 0, .host = "a"}}, 1).has_peers());
}

}  // namespace
}  // namespace megatron
