// The simulation against mathematics: closed forms of Young and Daly, sums, and limits.
#include "megatron/reliability/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megatron/reliability/checkpoint_interval.h"
#include "megatron/reliability/compare_policies.h"

namespace megatron {
namespace {

constexpr double kHour = 3600;

FailureMix one_class(double mean_between_s, FailureSign sign = FailureSign::crash,
                     double host_out_s = 0) {
  return {.name = "one",
          .gpus = 1,
          .seconds = mean_between_s,
          .classes = {{"failure", 1, sign, host_out_s}}};
}

FailureMix without_failures() { return {.name = "none", .classes = {{"never", 0}}}; }

/// One host with one GPU, of which nothing but restarts and saves takes time.
ReplayedRun plain_run(double seconds, double interval_s, double save_s) {
  return {.seconds = seconds,
          .hosts = 1,
          .gpus_per_host = 1,
          .hosts_per_replica = 1,
          .step_s = 1,
          .checkpoint_interval_s = interval_s,
          .save_s = save_s,
          .durable_s = 0};
}

double lost(const ReplayResult& result, LostTime cause) {
  return result.lost[static_cast<std::size_t>(cause)];
}

double total(const ReplayResult& result) {
  return std::accumulate(result.lost.begin(), result.lost.end(), result.effective);
}

double mean_effective(const ReplayedRun& run, const FailureMix& mix, const RecoveryPolicy& policy,
                      int num_replays) {
  double sum = 0;
  for (int i = 0; i < num_replays; ++i)
    sum += replay_run(run, mix, policy, static_cast<std::uint64_t>(i) + 1).effective;
  return sum / num_replays;
}

TEST(Replay, WithoutFailuresOnlySavesCost) {
  const ReplayResult result =
      replay_run(plain_run(1000 * 110, 100, 10), without_failures(), {.name = "any"}, 1);
  EXPECT_NEAR(result.effective, 100.0 / 110, 1e-9);
  EXPECT_NEAR(lost(result, LostTime::saving), 10.0 / 110, 1e-9);
  EXPECT_EQ(result.restarts, 0);
}

struct DalyCase {
  double mean_between_s, interval_s, save_s, restart_s;
};

class DalysClosedForm : public testing::TestWithParam<DalyCase> {};

// Figures 3 to 5 of Daly's paper have these mean times between failures, R and δ. 200,000 failures
// leave a standard error of about 0.2 % of what is lost.
TEST_P(DalysClosedForm, IsTheMeanOfTheReplays) {
  const DalyCase c = GetParam();
  const ReplayedRun run = plain_run(10'000 * c.mean_between_s, c.interval_s, c.save_s);
  const RecoveryPolicy policy{.name = "daly", .start_s = c.restart_s};
  const double expected =
      daly_effective_share(c.interval_s, c.save_s, c.restart_s, c.mean_between_s);
  EXPECT_NEAR(mean_effective(run, one_class(c.mean_between_s), policy, 20), expected,
              0.01 * (1 - expected));
}

INSTANTIATE_TEST_SUITE_P(Daly, DalysClosedForm,
                         testing::Values(DalyCase{24 * kHour, 117 * 60, 300, 600},
                                         DalyCase{6 * kHour, 57 * 60, 300, 600},
                                         DalyCase{kHour / 4, 9.1 * 60, 300, 600},
                                         DalyCase{6 * kHour, 15 * 60, 0, 0}));

TEST(Replay, YoungsIntervalIsNearTheBest) {
  const double between = 24 * kHour, save = 60, young = young_interval_s(save, between);
  EXPECT_DOUBLE_EQ(young, std::sqrt(2 * 60 * between));
  const RecoveryPolicy policy{.name = "any", .start_s = 60};
  const auto effective = [&](double interval) {
    return mean_effective(plain_run(3000 * between, interval, save), one_class(between), policy, 8);
  };
  EXPECT_GT(effective(young), effective(young / 3));
  EXPECT_GT(effective(young), effective(young * 3));
}

TEST(Replay, ARateTwiceAsHighCostsMore) {
  const RecoveryPolicy policy{.name = "any", .start_s = 300};
  double before = 1;
  for (const double scale : {0.0, 0.5, 1.0, 2.0, 4.0}) {
    ReplayedRun run = plain_run(2000 * kHour, 900, 1);
    run.failure_rate_scale = scale;
    const double effective = mean_effective(run, one_class(6 * kHour), policy, 10);
    EXPECT_LT(effective, before) << scale;
    before = effective;
  }
}

TEST(Replay, EverySecondHasOneCause) {
  for (const RecoveryPolicy& policy : recovery_policies({})) {
    for (const double scale : {1.0, 10.0, 100.0}) {
      ReplayedRun run;
      run.failure_rate_scale = scale;
      const ReplayResult result = replay_run(run, llama3_failure_mix(), policy, 7);
      EXPECT_NEAR(total(result), 1, 1e-9) << policy.name << ", " << scale;
      EXPECT_GE(*std::ranges::min_element(result.lost), 0) << policy.name << ", " << scale;
    }
  }
}

TEST(Replay, DetectionAndReactionTakeTheirTimeForEachFailure) {
  // Failures are far apart, so that none interrupts a restart.
  const ReplayedRun run = plain_run(1e9, 100, 0);
  const RecoveryPolicy policy{
      .name = "any", .crash_s = 3, .hang_s = 50, .operator_s = 20, .start_s = 5, .load_s = 2};
  const ReplayResult crash = replay_run(run, one_class(1e6), policy, 1),
                     hang = replay_run(run, one_class(1e6, FailureSign::hang), policy, 1);
  ASSERT_GT(crash.restarts, 800);
  const double each = static_cast<double>(crash.restarts) / run.seconds;
  EXPECT_NEAR(lost(crash, LostTime::detection), 3 * each, 0.05 * each);
  EXPECT_NEAR(lost(crash, LostTime::reaction), 20 * each, 0.2 * each);
  EXPECT_NEAR(lost(crash, LostTime::restart), 7 * each, 0.1 * each);
  EXPECT_NEAR(lost(crash, LostTime::repeated), 50 * each, 3 * each);  // half an interval
  const double each_hang = static_cast<double>(hang.restarts) / run.seconds;
  EXPECT_NEAR(lost(hang, LostTime::detection), 50 * each_hang, 0.5 * each_hang);
}

TEST(Replay, PeerCopiesLoseHalfAStep) {
  ReplayedRun run = plain_run(1e9, 10'000, 0);
  run.step_s = 8;
  const RecoveryPolicy policy{.name = "peers", .has_peer_copies = true};
  const ReplayResult result = replay_run(run, one_class(1e6), policy, 1);
  const double each = static_cast<double>(result.restarts) / run.seconds;
  EXPECT_NEAR(lost(result, LostTime::repeated), 4 * each, 0.3 * each);
}

TEST(Replay, AnUnfinishedSaveIsLost) {
  // Each save is durable only when the next one is due: on the average 1.5 intervals are lost.
  ReplayedRun run = plain_run(1e9, 1000, 0);
  run.durable_s = 1000;
  const ReplayResult result = replay_run(run, one_class(1e6), {.name = "any"}, 1);
  const double each = static_cast<double>(result.restarts) / run.seconds;
  EXPECT_NEAR(lost(result, LostTime::repeated), 1500 * each, 50 * each);
}

TEST(Replay, CorruptionGoesBackToASaveBeforeIt) {
  // Noticed after 5,000 s; and before that half of an interval of 100 s.
  const ReplayedRun run = plain_run(1e9, 100, 0);
  const RecoveryPolicy policy{.name = "any", .corruption_s = 5000, .has_peer_copies = true};
  const ReplayResult result = replay_run(run, one_class(1e6, FailureSign::corruption), policy, 1);
  const double each = static_cast<double>(result.restarts) / run.seconds;
  EXPECT_NEAR(lost(result, LostTime::repeated), 5050 * each, 10 * each);
}

TEST(Replay, ASlowHostCostsSpeedUntilItIsNoticed) {
  ReplayedRun run = plain_run(1e9, 1000, 0);
  run.slow_speed = 0.75;
  const ReplayResult result =
      replay_run(run, one_class(1e6, FailureSign::slowdown), {.name = "any", .slowdown_s = 400}, 1);
  const double each = static_cast<double>(result.restarts) / run.seconds;
  EXPECT_NEAR(lost(result, LostTime::slower), 100 * each, 2 * each);
  EXPECT_EQ(lost(result, LostTime::repeated), 0);
}

TEST(Replay, WithoutASpareHostTheRunWaits) {
  ReplayedRun run = plain_run(1e9, 1000, 0);
  const FailureMix mix = one_class(1e6, FailureSign::crash, 700);
  const auto waits = [&](std::int64_t spares, double allocation_s) {
    const RecoveryPolicy policy{.name = "any", .spare_hosts = spares, .allocation_s = allocation_s};
    const ReplayResult result = replay_run(run, mix, policy, 1);
    return lost(result, LostTime::waiting) * run.seconds / static_cast<double>(result.restarts);
  };
  EXPECT_NEAR(waits(0, 300), 300, 3);   // the scheduler is faster
  EXPECT_NEAR(waits(0, 5000), 700, 7);  // the host is repaired before
  EXPECT_LT(waits(1, 5000), 10);
}

TEST(Replay, AnElasticRunGoesOnWithFewerReplicas) {
  ReplayedRun run = plain_run(1e9, 1e4, 0);
  run.hosts = 8;
  run.hosts_per_replica = 2;
  const FailureMix mix = one_class(8e6, FailureSign::crash, 1e4);
  const RecoveryPolicy policy{.name = "elastic", .can_shrink = true, .has_peer_copies = true};
  const ReplayResult result = replay_run(run, mix, policy, 1);
  // A quarter of the speed is lost for 10,000 s. Two restarts: without the host, and with it.
  const auto failures = static_cast<double>(result.failures[0]);
  EXPECT_NEAR(lost(result, LostTime::slower) * run.seconds / failures, 2500, 50);
  EXPECT_NEAR(static_cast<double>(result.restarts), 2 * failures, 0.03 * failures);
  EXPECT_EQ(lost(result, LostTime::waiting), 0);
}

TEST(Replay, TheSameSeedGivesTheSameRun) {
  const RecoveryPolicy policy = recovery_policies({}).back();
  const ReplayResult one = replay_run({}, llama3_failure_mix(), policy, 3),
                     same = replay_run({}, llama3_failure_mix(), policy, 3),
                     other = replay_run({}, llama3_failure_mix(), policy, 4);
  EXPECT_EQ(one.effective, same.effective);
  EXPECT_EQ(one.lost, same.lost);
  EXPECT_NE(one.effective, other.effective);
}

TEST(Replay, FailuresHappenInTheSharesOfTheMix) {
  const FailureMix mix = llama3_failure_mix();
  std::vector<double> counts(mix.classes.size());
  const RecoveryPolicy policy{.name = "at once", .spare_hosts = 2048};
  constexpr int replays = 100;
  for (int i = 0; i < replays; ++i) {
    const ReplayResult result = replay_run({}, mix, policy, static_cast<std::uint64_t>(i));
    for (std::size_t c = 0; c < counts.size(); ++c)
      counts[c] += static_cast<double>(result.failures[c]) / replays;
  }
  for (std::size_t c = 0; c < counts.size(); ++c) {
    const double expected = mix.classes[c].count;  // four standard errors of a Poisson mean
    EXPECT_NEAR(counts[c], expected, 4 * std::sqrt(expected / replays)) << mix.classes[c].name;
  }
}

TEST(ComparePolicies, AutomaticBeatsByHandAndSparesReach97Percent) {
  const auto results = compare_policies({}, llama3_failure_mix(), recovery_policies({}), 50, 1);
  ASSERT_EQ(results.size(), 4U);
  EXPECT_LT(results[0].high, results[1].low);  // by hand, automatic
  EXPECT_LT(results[1].high, results[2].low);  // spare hosts and peers
  EXPECT_GE(results[2].low, 0.97);
  EXPECT_GE(results[3].low, 0.97);  // elastic
  for (const PolicyResult& result : results) {
    EXPECT_LE(result.low, result.median);
    EXPECT_LE(result.median, result.high);
  }
  EXPECT_NEAR(results[2].of_all_hosts, results[2].median * 2048 / (2048 + 16), 1e-12);
}

}  // namespace
}  // namespace megatron
