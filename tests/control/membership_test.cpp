// Which hosts take part in a run, decided without a process or a clock.
#include "megatron/control/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/message_of.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = Decision::Kind;

/// A leader whose clock the test sets.
class Leader {
 public:
  explicit Leader(MembershipOptions options) : membership_(std::move(options)) {}
  std::string join(const std::string& id, std::optional<std::int64_t> node_rank = {},
                   std::int64_t num_ranks = 1) {
    std::string refusal = membership_.join({id, "host-" + id, node_rank, num_ranks}, now_);
    membership_.decide(now_);
    return refusal;
  }
  void end(const std::string& id, const HostResult& result) {
    membership_.end(id, membership_.decide(now_).round, result, now_);
  }
  void end_all(const HostResult& result) {
    for (const std::string& id : decide().members) end(id, result);
  }
  void lose(const std::string& id) { membership_.lose(id, now_); }
  void leave(const std::string& id) { membership_.leave(id); }
  const Decision& decide(milliseconds later = milliseconds(0)) {
    now_ += later;
    return membership_.decide(now_);
  }
  std::string agent_of(std::int64_t node_rank) const { return membership_.agent_of(node_rank); }
  void end(const std::string& id, std::int64_t round, const HostResult& result) {
    membership_.end(id, round, result, now_);
  }
  std::vector<std::string> awaited() const { return membership_.awaited_members(); }
  std::string waiting() const { return membership_.waiting_text(); }

 private:
  Membership membership_;
  Membership::Time now_{seconds(1000)};
};

const HostResult kKilled{137, "rank 1 was killed by signal 9 (SIGKILL)"};
const HostResult kOther{1, "rank 0 ended with exit code 1", /*is_consequence=*/true};
const HostResult kAsked{
    .code = 143, .description = "rank 0 ended with exit code 143", .stopped_as_asked = true};
const HostResult kSignalled{.code = 143,
                            .description = "rank 0 ended with exit code 143",
                            .was_signalled = true,
                            .stopped_as_asked = true};

MembershipOptions elastic(std::int64_t least, std::int64_t most) {
  return {.min_hosts = least, .max_hosts = most, .max_restarts = 5, .can_grow = true};
}

TEST(Membership, OneHostBeginsAtOnceAndEnds) {
  Leader leader({});
  leader.join("a");
  EXPECT_EQ(leader.decide().kind, Kind::run);
  EXPECT_EQ(leader.decide().round, 1);
  EXPECT_THAT(leader.decide().members, ElementsAre("a"));
  leader.end("a", {});
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 0);
}

TEST(Membership, OrdersHostsByTheirNumbers) {
  Leader leader({.min_hosts = 3, .max_hosts = 3});
  leader.join("c", 2);
  leader.join("a", 0);
  EXPECT_EQ(leader.decide(seconds(60)).kind, Kind::wait);
  EXPECT_EQ(leader.waiting(), "2 of 3 hosts are here (host-a, host-c)");
  leader.join("b", 1);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "b", "c"));
}

TEST(Membership, RefusesAHostThatWasStartedTwice) {
  Leader leader({.min_hosts = 3, .max_hosts = 3});
  EXPECT_EQ(leader.join("a", 0), "");
  EXPECT_EQ(leader.join("b", 0), "host 0 was started twice, on host-a and on host-b");
  EXPECT_EQ(leader.join("c", 1, 2), "2 ranks on host-c, but 1 on host-a");
  leader.lose("a");
  EXPECT_EQ(leader.join("d", 0), "") << "it takes the place of a lost host";
}

TEST(Membership, GivesUpWithoutEnoughHosts) {
  Leader leader({.min_hosts = 2, .max_hosts = 2, .join_timeout = seconds(100)});
  leader.join("a", 0);
  leader.decide();
  EXPECT_EQ(leader.decide(seconds(99)).kind, Kind::wait);
  EXPECT_EQ(leader.decide(seconds(1)).kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 2);
  EXPECT_THAT(leader.decide().reason, HasSubstr("1 of 2 hosts is here (host-a) after 100 s"));
}

TEST(Membership, WaitsForFurtherHostsOnlyAtFirst) {
  Leader leader(elastic(2, 4));
  leader.join("a");
  EXPECT_EQ(leader.decide(seconds(100)).kind, Kind::wait);
  leader.join("b");
  EXPECT_EQ(leader.decide(seconds(10)).kind, Kind::wait);
  leader.join("c");
  EXPECT_EQ(leader.decide(seconds(4)).kind, Kind::wait);
  EXPECT_EQ(leader.decide(seconds(1)).kind, Kind::run) << "15 s after two were here";
  EXPECT_EQ(leader.decide().members.size(), 3U);
  leader.end_all(kKilled);
  EXPECT_EQ(leader.decide().round, 2) << "after a failure it begins at once";
}

TEST(Membership, GoesOnWithFewerHosts) {
  Leader leader(elastic(2, 3));
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  EXPECT_EQ(leader.decide().members.size(), 3U);
  leader.lose("b");
  EXPECT_EQ(leader.decide().round, 1) << "the others have not ended";
  EXPECT_THAT(leader.awaited(), ElementsAre("a", "c"));
  EXPECT_EQ(leader.waiting(), "the ranks of host-a and of 1 more host have not ended");
  leader.end("a", kOther);
  leader.end("c", kOther);
  EXPECT_EQ(leader.decide().round, 2);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "c"));
  EXPECT_EQ(leader.decide().restarts, 1);
  EXPECT_THAT(leader.decide().reason, HasSubstr("host host-b is lost"));
  leader.lose("c");
  leader.end("a", kOther);
  EXPECT_EQ(leader.decide().kind, Kind::wait) << "one is too few";
  EXPECT_EQ(leader.decide().blame, "host-b (1), host-c (1)");
}

TEST(Membership, TakesInHostsThatComeLater) {
  Leader leader(elastic(1, 3));
  leader.join("a");
  leader.join("b");
  EXPECT_EQ(leader.decide(seconds(15)).round, 1);
  leader.join("c");
  EXPECT_EQ(leader.decide(seconds(29)).kind, Kind::run) << "the round has just begun";
  EXPECT_EQ(leader.decide(seconds(1)).kind, Kind::stop);
  EXPECT_EQ(leader.decide().reason, "3 hosts are here instead of 2");
  leader.end_all(kAsked);
  EXPECT_EQ(leader.decide().kind, Kind::run);
  EXPECT_EQ(leader.decide().round, 2);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "b", "c"));
  EXPECT_EQ(leader.decide().restarts, 0) << "nothing has failed";
  leader.join("d");
  EXPECT_EQ(leader.decide(seconds(100)).kind, Kind::run) << "three are the most";
  leader.lose("a");
  for (const char* id : {"b", "c"}) leader.end(id, kOther);
  EXPECT_THAT(leader.decide().members, ElementsAre("b", "c", "d")) << "the spare takes over";
}

TEST(Membership, AHostLeavesAndTheRunGoesOn) {
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

TEST(Membership, ARunThatEndedByItselfIsNotStartedAgainForAHostThatLeaves) {
  Leader leader(elastic(2, 2));
  for (const char* id : {"a", "b"}) leader.join(id);
  leader.leave("b");
  leader.end_all({0, ""});
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 0);
}

TEST(Membership, AReplacementMayHaveThePlaceOfAHostThatLeaves) {
  Leader leader(elastic(2, 2));
  leader.join("a", 0);
  leader.join("b", 1);
  leader.leave("b");
  EXPECT_EQ(leader.decide().kind, Kind::stop);
  EXPECT_EQ(leader.join("c", 1), "") << "the ranks still save";
  leader.end_all(kAsked);
  EXPECT_THAT(leader.decide().members, ElementsAre("a", "c"));
}

TEST(Membership, TheRunStopsWhenAHostLeavesThatItNeeds) {
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

TEST(Membership, TwoHostsLeaveAtOnce) {
  Leader leader(elastic(1, 3));
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  leader.leave("b");
  EXPECT_EQ(leader.decide().kind, Kind::stop);
  leader.leave("c");
  leader.end_all(kAsked);
  EXPECT_THAT(leader.decide().members, ElementsAre("a"));
}

TEST(Membership, AFailureWhileAHostLeavesIsARestartWithoutIt) {
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

TEST(Membership, ASpareThatLeavesStopsNobody) {
  Leader leader(elastic(1, 2));
  for (const char* id : {"a", "b", "spare"}) leader.join(id);
  leader.leave("spare");
  EXPECT_EQ(leader.decide(seconds(100)).kind, Kind::run);
  leader.lose("b");
  leader.end("a", kOther);
  EXPECT_THAT(leader.decide().members, ElementsAre("a")) << "the spare is gone";
}

TEST(Membership, AStopByTheUserDuringGrowthEndsTheRun) {
  Leader leader(elastic(1, 2));
  leader.join("a");
  leader.decide(seconds(15));
  leader.join("b");
  EXPECT_EQ(leader.decide(seconds(30)).kind, Kind::stop);
  leader.end("a", kSignalled);
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 143);
}

TEST(Membership, DoesNotGrowWhenTheRunCannotGoOn) {
  MembershipOptions options = elastic(1, 2);
  options.can_grow = false;
  Leader leader(options);
  leader.join("a");
  leader.decide(seconds(15));
  leader.join("b");
  EXPECT_EQ(leader.decide(seconds(100)).kind, Kind::run);
}

TEST(Membership, TakesTheLargestNumberOfHostsThatFits) {
  MembershipOptions options = elastic(1, 4);
  options.refusal = [](std::int64_t hosts) { return hosts == 3 ? "3 divides nothing" : ""; };
  Leader leader(options);
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  EXPECT_THAT(leader.decide(seconds(15)).members, ElementsAre("a", "b"));
  EXPECT_EQ(leader.decide(seconds(100)).kind, Kind::run) << "3 do not fit";
  leader.join("d");
  EXPECT_EQ(leader.decide(seconds(30)).kind, Kind::stop) << "4 do";

  options.refusal = [](std::int64_t) { return "it never fits"; };
  Leader hopeless(options);
  hopeless.join("a");
  EXPECT_EQ(hopeless.decide(seconds(15)).kind, Kind::wait);
  EXPECT_EQ(hopeless.decide(options.join_timeout).code, 2);
  EXPECT_THAT(hopeless.decide().reason, HasSubstr("with 1 host, it never fits"));
}

/// The third start in a row that fails within a minute delays the next by a second.
TEST(Membership, SaysThatAStartIsDelayed) {
  Leader leader({.max_restarts = 9});
  leader.join("a");
  for (int start = 1; start <= 2; ++start) {
    leader.end_all(kKilled);
    EXPECT_EQ(leader.decide().kind, Kind::run) << "at once after failure " << start;
  }
  leader.end_all(kKilled);
  EXPECT_EQ(leader.decide().kind, Kind::wait);
  EXPECT_EQ(leader.waiting(),
            "the last 3 starts have failed within a minute each, so the next one is delayed");
  EXPECT_EQ(leader.decide(seconds(2)).kind, Kind::run);
}

TEST(Membership, EndsAfterTheLastRestart) {
  Leader leader({.max_restarts = 1});
  leader.join("a");
  leader.decide();
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide().round, 2);
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide().kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 137);
}

TEST(Membership, DoesNotRepeatWhatARestartCannotMend) {
  for (const HostResult& result :
       {HostResult{2, "a mistake"}, HostResult{143, "stopped"}, HostResult{130, "interrupted"},
        HostResult{17, "a result is wrong again"},
        HostResult{
            .code = 140, .description = "stopped", .was_signalled = true, .stopped_as_asked = true},
        HostResult{.code = 137, .description = "killed", .was_signalled = true}}) {
    Leader leader({.max_restarts = 5});
    leader.join("a");
    leader.decide();
    leader.end("a", result);
    EXPECT_EQ(leader.decide().kind, Kind::end) << result.description;
    EXPECT_EQ(leader.decide().code, result.code);
  }
}

TEST(Membership, NamesTheCauseAndNotItsConsequences) {
  Leader leader({.min_hosts = 2, .max_hosts = 2, .max_restarts = 5});
  leader.join("a", 0);
  leader.join("b", 1);
  leader.decide();
  leader.end("a", kOther);
  leader.end("b", kKilled);
  EXPECT_EQ(leader.decide().reason, kKilled.description);
  EXPECT_EQ(leader.decide().blame, "host-b (1)");
}

TEST(Membership, EndsHostsThatDoNotEndAfterAFailure) {
  Leader leader({.min_hosts = 2, .max_hosts = 2, .end_timeout = seconds(60)});
  leader.join("a", 0);
  leader.join("b", 1);
  leader.decide();
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide(seconds(59)).kind, Kind::run);
  EXPECT_EQ(leader.decide(seconds(1)).kind, Kind::abort);
}

TEST(Membership, WaitsLongerAndLongerWhenRoundsFailSoon) {
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

void stop_for_a_third(Leader& leader) {
  leader.join("a");
  leader.join("b");
  leader.decide();
  leader.decide(seconds(15));
  leader.join("c");
  ASSERT_EQ(leader.decide(seconds(30)).kind, Kind::stop);
}

TEST(Membership, ASlowSaveOfOneHostDoesNotEndAStopForOthers) {
  Leader leader(elastic(2, 3));
  stop_for_a_third(leader);
  leader.end("a", kAsked);
  EXPECT_EQ(leader.decide(seconds(1000)).kind, Kind::stop) << "it is not made to end";
  EXPECT_THAT(leader.awaited(), ElementsAre("b")) << "which must be alive";
  leader.end("b", kAsked);
  EXPECT_EQ(leader.decide().round, 2);
  EXPECT_EQ(leader.decide().restarts, 0);
}

TEST(Membership, AHostThatHangsWhileItStopsForOthersCostsARestart) {
  Leader leader(elastic(2, 3));
  stop_for_a_third(leader);
  leader.end("a", kKilled);
  ASSERT_EQ(leader.decide(seconds(60)).kind, Kind::abort);
  leader.end("b", {143, "ended by its launcher", /*is_consequence=*/true});
  EXPECT_EQ(leader.decide().round, 2);
  EXPECT_EQ(leader.decide().restarts, 1);
}

TEST(Membership, TheFirstFailureIsTheCause) {
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

TEST(Membership, ASignalToOneLauncherEndsTheRun) {
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

TEST(Membership, ACrashWhileOthersStopIsNotHidden) {
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

TEST(Membership, AHostThatLeavesDuringAFailureDoesNotEndTheRun) {
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

TEST(Membership, AShortageOfHostsIsNoMistakeOfTheUser) {
  MembershipOptions options = elastic(2, 3);
  options.join_timeout = seconds(100);
  Leader leader(options);
  for (const char* id : {"a", "b"}) leader.join(id);
  leader.decide(seconds(15));
  leader.lose("b");
  leader.end("a", kOther);
  EXPECT_EQ(leader.decide().kind, Kind::wait);
  EXPECT_EQ(leader.decide(seconds(100)).kind, Kind::end);
  EXPECT_EQ(leader.decide().code, 1) << "a cluster starts it again";
}

TEST(Membership, WaitsForHostsWhenTheRunDoesNotFitSoFew) {
  MembershipOptions options = elastic(2, 4);
  options.refusal = [](std::int64_t hosts) { return hosts < 4 ? "too few" : ""; };
  options.join_timeout = seconds(100);
  Leader leader(options);
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  EXPECT_EQ(leader.decide(seconds(20)).kind, Kind::wait);
  EXPECT_EQ(leader.waiting(),
            "3 of 2 to 4 hosts are here (host-a, host-b, host-c), and the run does not fit so few");
  leader.join("d");
  EXPECT_EQ(leader.decide().members.size(), 4U);
  leader.lose("d");
  for (const char* id : {"a", "b", "c"}) leader.end(id, kOther);
  leader.decide();
  EXPECT_EQ(leader.decide(seconds(99)).kind, Kind::wait);
  EXPECT_EQ(leader.decide(seconds(1)).code, 1);
}

TEST(Membership, AHostThatWasGivenUpMayComeBack) {
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

TEST(Membership, GivesUpAHostWhoseRanksCannotBeKilled) {
  Leader leader(elastic(1, 2));
  leader.join("a");
  leader.join("b");
  leader.decide();
  leader.end("a", kKilled);
  EXPECT_EQ(leader.decide(seconds(60)).kind, Kind::abort);
  leader.decide(seconds(59));
  EXPECT_EQ(leader.decide().round, 1);
  leader.decide(seconds(1));
  EXPECT_THAT(leader.decide().members, ElementsAre("a"));
}

/// Its ranks fail, and its launcher is started again and again.
TEST(Membership, ASpareThatComesAndGoesKeepsNobodyWaiting) {
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

/// To ask is to read the command and its files.
TEST(Membership, AsksOnceWhetherANumberOfHostsFits) {
  int asked = 0;
  MembershipOptions options = elastic(1, 3);
  options.refusal = [&](std::int64_t hosts) {
    ++asked;
    return hosts > 1 ? "too many" : "";
  };
  Leader leader(options);
  for (const char* id : {"a", "b", "c"}) leader.join(id);
  for (int i = 0; i < 100; ++i) leader.decide(seconds(1));
  EXPECT_EQ(asked, 3);
}

TEST(Decision, IsReadAsWritten) {
  Decision decision{.kind = Kind::stop,
                    .round = 3,
                    .num_hosts = 2,
                    .members = {"a", "b"},
                    .restarts = 2,
                    .reason = "a \"reason\"",
                    .code = 137,
                    .is_restart = true,
                    .blame = "b (2), a (1)"};
  const std::string text = write_decision(decision);
  EXPECT_EQ(text.find("\"a\""), std::string::npos) << "every host reads it";
  decision.members.clear();
  EXPECT_EQ(read_decision(text), decision);
  std::string unknown_kind = text, unknown_code = text;
  unknown_kind.replace(unknown_kind.find("\"kind\":2"), 8, "\"kind\":9");
  unknown_code.replace(unknown_code.find("137"), 3, "256");
  for (const std::string& wrong : {std::string(), std::string("{"), std::string("[]"),
                                   std::string("{}"), unknown_kind, unknown_code})
    EXPECT_NE(message_of([&] { read_decision(wrong); }), "") << wrong;
}

}  // namespace
}  // namespace megatron
