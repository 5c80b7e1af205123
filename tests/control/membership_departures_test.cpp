// Hosts that leave a run or stop while others continue, decided without a process or a clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/membership_leader.h"

namespace megatron {
namespace {

using testing::ElementsAre;

TEST(MembershipDepartures, AHostLeavesAndTheRunGoesOn) {
  Leader leader(elastic(1, 3));
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  leader.leave("b");
  EXPECT_EQ(leader.decide().kind, Kind::stop);
  EXPECT_EQ(leader.decide().reason, "host host-b leaves the run");
  leader.end_all(kAsked);
  EXPECT_EQ(leader.decide().kind, Kind::run);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "c"));
  EXPECT_EQ(leader.decide().restarts, 0);
  EXPECT_FALSE(leader.decide().is_restart);
}

TEST(MembershipDepartures, ARunThatEndedByItselfIsNotStartedAgainForAHostThatLeaves) {
  Leader leader(elastic(2, 2));
  for (const char* id : {"a", "b"}) leader.join(id);
  leader.leave("b");
  leader.end_all({0, ""});
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 0);
}

TEST(MembershipDepartures, AReplacementMayHaveThePlaceOfAHostThatLeaves) {
  Leader leader(elastic(2, 2));
  leader.join("a", 0);
  leader.join("b", 1);
  leader.leave("b");
  EXPECT_EQ(leader.decide().kind, Kind::stop);
  EXPECT_EQ(leader.join("c", 1), "") << "the ranks still save";
  leader.end_all(kAsked);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "c"));
}

TEST(MembershipDepartures, TheRunStopsWhenAHostLeavesThatItNeeds) {
  Leader leader(elastic(2, 3));
  leader.join("a");
  leader.join("b");
  leader.decide(seconds(15));
  leader.leave("b");
  EXPECT_EQ(leader.decide().reason, "host host-b leaves the run, which needs 2 hosts");
  leader.end_all(kAsked);
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 143) << "a cluster starts it again";
}

TEST(MembershipDepartures, TwoHostsLeaveAtOnce) {
  Leader leader(elastic(1, 3));
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  leader.leave("b");
  EXPECT_EQ(leader.decide().kind, Kind::stop);
  leader.leave("c");
  leader.end_all(kAsked);
  EXPECT_THAT(leader.decide().members, ElementsAre("a"));
}

TEST(MembershipDepartures, AFailureWhileAHostLeavesIsARestartWithoutIt) {
  Leader leader(elastic(1, 3));
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  leader.leave("c");
  EXPECT_EQ(leader.decide().kind, Kind::stop);
  leader.end("a", kKilled);
  leader.end("b", kOther);
  leader.end("c", kOther);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "b"));
  EXPECT_EQ(leader.decide().restarts, 1);
}

TEST(MembershipDepartures, ASpareThatLeavesStopsNobody) {
  Leader leader(elastic(1, 2));
  for (const char* id : {"a", "b", "spare"}) leader.join(id);
  leader.leave("spare");
  EXPECT_EQ(leader.decide(seconds(100)).kind, Kind::run);
  leader.lose("b");
  leader.end("a", kOther);
  EXPECT_THAT(leader.decide().members, ElementsAre("a")) << "the spare is gone";
}

TEST(MembershipDepartures, AStopByTheUserDuringGrowthEndsTheRun) {
  Leader leader(elastic(1, 2));
  leader.join("a");
  leader.decide(seconds(15));
  leader.join("b");
  EXPECT_EQ(leader.decide(seconds(30)).kind, Kind::stop);
  leader.end("a", kSignalled);
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 143);
}

void stop_for_a_third(Leader& leader) {
  leader.join("a");
  leader.join("b");
  leader.decide();
  leader.decide(seconds(15));
  leader.join("c");
  ASSERT_EQ(leader.decide(seconds(30)).kind, Kind::stop);
}

TEST(MembershipDepartures, ASlowSaveOfOneHostDoesNotEndAStopForOthers) {
  Leader leader(elastic(2, 3));
  stop_for_a_third(leader);
  leader.end("a", kAsked);
  EXPECT_EQ(leader.decide(seconds(1000)).kind, Kind::stop) << "it is not made to end";
  EXPECT_THAT(leader.awaited(), ElementsAre("b")) << "which must be alive";
  leader.end("b", kAsked);
  EXPECT_EQ(leader.decide().round, 2);
  EXPECT_EQ(leader.decide().restarts, 0);
}

TEST(MembershipDepartures, AHostThatIsNeededLeavesDuringAStopForOthers) {
  Leader leader(elastic(2, 3));
  stop_for_a_third(leader);
  leader.leave("b");
  EXPECT_EQ(leader.decide().kind, Kind::stop);
  leader.leave("c");
  leader.decide();
  for (const char* id : {"a", "b"}) leader.end(id, kAsked);
  EXPECT_EQ(leader.decide().kind, Kind::end) << "only one host is left";
  EXPECT_EQ(leader.decide().code, 143);
}

TEST(MembershipDepartures, AHostThatHangsWhileItStopsForOthersCostsARestart) {
  Leader leader(elastic(2, 3));
  stop_for_a_third(leader);
  leader.end("a", kKilled);
  ASSERT_EQ(leader.decide(seconds(60)).kind, Kind::abort);
  leader.end("b", {143, "ended by its launcher", /*is_consequence=*/true});
  EXPECT_EQ(leader.decide().round, 2);
  EXPECT_EQ(leader.decide().restarts, 1);
}

TEST(MembershipDepartures, ASignalToOneLauncherEndsTheRun) {
  Leader leader({.min_hosts = 2, .max_hosts = 2, .max_restarts = 5});
  leader.join("a");
  leader.join("b");
  leader.decide();
  leader.end(
      "a",
      {.code = 1, .description = "follows", .is_consequence = true, .since_failure = seconds(5)});
  leader.end("b", kSignalled);
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 143);
}

TEST(MembershipDepartures, ACrashWhileOthersStopIsNotHidden) {
  Leader signalled({.min_hosts = 2, .max_hosts = 2, .max_restarts = 5});
  signalled.join("a");
  signalled.join("b");
  signalled.decide();
  signalled.end("a", kSignalled);
  signalled.end("b", {.code = 137, .description = "out of memory", .was_signalled = true});
  EXPECT_EQ(signalled.decide().kind, Kind::end);
  EXPECT_EQ(signalled.decide().code, 137);
  EXPECT_EQ(signalled.decide().reason, "out of memory");

  Leader grows(elastic(2, 3));
  stop_for_a_third(grows);
  grows.end("a", kAsked);
  grows.decide(seconds(3));
  grows.end("b", kKilled);
  EXPECT_EQ(grows.decide().round, 2);
  EXPECT_EQ(grows.decide().restarts, 1) << "a failure is counted";
  EXPECT_EQ(grows.decide().reason, kKilled.description);
}

TEST(MembershipDepartures, AHostThatLeavesDuringAFailureDoesNotEndTheRun) {
  Leader leader(elastic(2, 3));
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  leader.decide();
  leader.end("c", kKilled);
  leader.leave("b");
  leader.end("a", kOther);
  leader.end("b", {.code = 1, .is_consequence = true, .was_signalled = true});
  EXPECT_EQ(leader.decide().round, 2);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "c"));
}

/// Its ranks fail, and its launcher is started again and again.
TEST(MembershipDepartures, ASpareThatComesAndGoesKeepsNobodyWaiting) {
  Leader leader(elastic(1, 9));
  leader.join("a");
  leader.decide();
  ASSERT_EQ(leader.decide(seconds(15)).kind, Kind::run);
  leader.join("good");
  int waited_s = 0;
  leader.join("x");
  for (std::string bad = "x"; leader.decide().kind == Kind::run && waited_s < 1000; bad += "x") {
    leader.decide(seconds(10));
    waited_s += 10;
    leader.join(bad + "x");
    leader.lose(bad);
  }
  EXPECT_EQ(waited_s, 120);
}

}  // namespace
}  // namespace megatron
