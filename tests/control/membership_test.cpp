// Which hosts take part in a run, decided without a process or a clock.
#include "megatron/control/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/membership_leader.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
  EXPECT_EQ(leader.waiting(), "2 of 3 hosts are available (host-a, host-c)");
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
  EXPECT_THAT(leader.decide().reason, HasSubstr("1 of 2 hosts is available (host-a) after 100 s"));
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
  EXPECT_EQ(leader.decide().reason, "3 hosts are available instead of 2");
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
  EXPECT_EQ(
      leader.waiting(),
      "3 of 2 to 4 hosts are available (host-a, host-b, host-c), and the run does not fit so few");
  leader.join("d");
  EXPECT_EQ(leader.decide().members.size(), 4U);
  leader.lose("d");
  for (const char* id : {"a", "b", "c"}) leader.end(id, kOther);
  leader.decide();
  EXPECT_EQ(leader.decide(seconds(99)).kind, Kind::wait);
  EXPECT_THAT(leader.waiting(), HasSubstr("and the run does not fit so few")) << "and is no delay";
  EXPECT_EQ(leader.decide(seconds(1)).code, 1);
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
