// Which failures end a run and which restart it, decided without a process or a clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/membership_leader.h"

namespace megatron {
namespace {

using testing::ElementsAre;

TEST(MembershipFailures, EndsAfterTheLastRestart) {
  Leader leader({.max_restarts = 1});
  leader.join("a");
  leader.decide();
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide().round, 2);
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 137);
}

TEST(MembershipFailures, DoesNotRepeatWhatARestartCannotMend) {
  for (const HostResult& result :
       {HostResult{2, "a mistake"}, HostResult{143, "stopped"}, HostResult{130, "interrupted"},
        HostResult{17, "a result is wrong again"},
        HostResult{.code = 140,
        .description = "stopped",
        .was_signalled = true,
        .stopped_on_request = true},
        HostResult{.code = 137, .description = "killed", .was_signalled = true}}) {
    Leader leader({.max_restarts = 5});
    leader.join("a");
    leader.decide();
    leader.end("a", result);
    EXPECT_EQ(leader.decide().kind, Kind::end) << result.description;
    EXPECT_EQ(leader.decide().code, result.code);
  }
}

TEST(MembershipFailures, NamesTheCauseAndNotItsConsequences) {
  Leader leader({.min_hosts = 2, .max_hosts = 2, .max_restarts = 5});
  leader.join("a", 0);
  leader.join("b", 1);
  leader.decide();
  leader.end("a", kOther);
  leader.end("b", kKilled);
  EXPECT_EQ(leader.decide().reason, kKilled.description);
  EXPECT_EQ(leader.decide().blame, "host-b (1)");
}

TEST(MembershipFailures, EndsHostsThatDoNotEndAfterAFailure) {
  Leader leader({.min_hosts = 2, .max_hosts = 2, .self_end_time = seconds(20)});
  leader.join("a", 0);
  leader.join("b", 1);
  leader.decide();
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide(seconds(19)).kind, Kind::run);
  EXPECT_EQ(leader.decide(seconds(1)).kind, Kind::abort);
}

TEST(MembershipFailures, WaitsLongerAndLongerWhenRoundsFailSoon) {
  Leader leader({.max_restarts = 100});
  leader.join("a");
  leader.decide();
  std::vector<std::int64_t> waits;
  for (int failure = 0; failure < 9; ++failure) {
    const std::int64_t round = leader.decide().round;
    leader.end("a", kKilled);
    std::int64_t waited_s = 0;
    while (leader.decide(seconds(waited_s == 0 ? 0 : 1)).round == round && waited_s < 100)
      ++waited_s;
    waits.push_back(waited_s);
  }
  EXPECT_THAT(waits, ElementsAre(0, 0, 1, 2, 4, 8, 16, 30, 30));
  leader.decide(seconds(60));
  const std::int64_t round = leader.decide().round;
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide().round, round + 1) << "the last round did something useful";
}

TEST(MembershipFailures, TheFirstFailureIsTheCause) {
  Leader leader({.min_hosts = 3, .max_hosts = 3, .max_restarts = 5});
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  leader.decide();
  leader.end("a", {.code = 1, .description = "follows", .since_failure = seconds(1)});
  leader.decide(seconds(9));
  leader.end("b", {.code = 1, .description = "is first", .since_failure = seconds(12)});
  leader.end("c", {.code = 143, .description = "is ended", .is_consequence = true});
  EXPECT_EQ(leader.decide().reason, "is first");

  leader.end("a", {.code = 1, .description = "lost its peer", .since_failure = seconds(2)});
  leader.end("b", {.code = 139, .description = "died", .since_failure = milliseconds(1'800)});
  leader.end("c", {.code = 1, .description = "lost it too", .since_failure = milliseconds(1'900)});
  EXPECT_EQ(leader.decide().reason, "died") << "at the same time, the exit code decides";
}

TEST(MembershipFailures, AHostThatWasGivenUpMayComeBack) {
  Leader leader(elastic(1, 2));
  leader.join("a");
  leader.join("b");
  leader.decide();
  leader.end("a", kKilled);
  leader.lose("b");  // it says nothing
  EXPECT_THAT(leader.decide().members, ElementsAre("a"));
  leader.end("b", /*round=*/1, kOther);
  EXPECT_EQ(leader.decide(seconds(29)).kind, Kind::run);
  EXPECT_EQ(leader.decide(seconds(1)).kind, Kind::stop) << "for the one that is back";

  Leader fixed({.min_hosts = 2, .max_hosts = 2, .max_restarts = 5});
  fixed.join("a", 0);
  fixed.join("b", 1);
  fixed.decide();
  fixed.end("a", kKilled);
  fixed.lose("b");
  EXPECT_EQ(fixed.decide().kind, Kind::wait);
  EXPECT_EQ(fixed.agent_of(1), "");
  fixed.end("b", /*round=*/1, kOther);
  EXPECT_EQ(fixed.decide().round, 2);
  EXPECT_EQ(fixed.agent_of(1), "b");
}

TEST(MembershipFailures, GivesUpAHostWhoseRanksCannotBeKilled) {
  Leader leader(elastic(1, 2));
  leader.join("a");
  leader.join("b");
  leader.decide();
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide(seconds(20)).kind, Kind::abort);
  leader.decide(seconds(59));
  EXPECT_EQ(leader.decide().round, 1);
  leader.decide(seconds(1));
  EXPECT_THAT(leader.decide().members, ElementsAre("a"));
}

}  // namespace
}  // namespace megatron
