// Agents of several hosts in one process: they meet, run rounds, lose each other and end.
#include "megatron/control/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <thread>

#include "megatron/control/connect_to_store.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Kind = Decision::Kind;
using AgentPointer = std::unique_ptr<Agent>;

constexpr milliseconds kLimit{20'000};

bool is_running(const Agent& agent, std::int64_t round) {
  return agent.decision().kind == Kind::run && agent.decision().round == round;
}

/// Serves the agents until `is_done`, and returns whether that happened in time.
template <class IsDone>
bool serve_until(const std::vector<Agent*>& agents, const IsDone& is_done) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (!is_done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::vector<pollfd> events;
    for (const Agent* agent : agents) events.push_back({agent->descriptor(), POLLIN, 0});
    ::poll(events.data(), events.size(), 20);
    for (Agent* agent : agents) agent->serve();
  }
  return true;
}

class Agents : public testing::Test {
 protected:
  explicit Agents(const MembershipOptions& membership = {
                      .min_hosts = 2, .max_hosts = 2, .max_restarts = 3}) {
    options_.membership = membership;
    options_.membership.join_timeout = milliseconds(10'000);
    options_.node_rank = 0;
    // The port is chosen before others are told of it.
    options_.master_port = ListeningSocket({.port = 0, .loopback_only = true}).port();
    options_.progress = [this](const std::string& line) { said_ += line + "\n"; };
    leader_ = Agent::join(options_);
    options_.progress = nullptr;  // of the others, which join on threads
  }

  AgentOptions options_of(std::int64_t node_rank) const {
    AgentOptions options = options_;
    options.node_rank = node_rank;
    return options;
  }
  /// Joins as another host, while the leader serves.
  AgentPointer join(const AgentOptions& options) {
    auto joining = std::async(std::launch::async, [&] { return Agent::join(options); });
    serve_until({leader_.get()},
                [&] { return joining.wait_for(milliseconds(0)) == std::future_status::ready; });
    return joining.get();
  }
  RunStore store_of(const Agent& agent) const {
    return RunStore(connect_to_store({agent.store_address(), agent.store_port()}, {}));
  }

  AgentOptions options_;
  std::string said_;  ///< by the leader
  AgentPointer leader_;
};

class ElasticAgents : public Agents {
 protected:
  ElasticAgents() : Agents({.min_hosts = 1, .max_hosts = 2, .max_restarts = 3, .can_grow = true}) {}
};

TEST_F(Agents, MeetRunAndEnd) {
  EXPECT_EQ(leader_->decision().kind, Kind::wait);
  EXPECT_THAT(leader_->waiting_text(), HasSubstr("1 of 2 hosts is available"));
  const AgentPointer member = join(options_of(1));
  ASSERT_TRUE(serve_until({leader_.get(), member.get()}, [&] { return is_running(*member, 1); }));
  EXPECT_EQ(member->decision().num_hosts, 2);
  EXPECT_EQ(leader_->place(), 0);
  EXPECT_EQ(member->place(), 1);
  member->report_end(1, {});
  leader_->report_end(1, {});
  ASSERT_TRUE(serve_until({leader_.get(), member.get()},
                          [&] { return member->decision().kind == Kind::end; }));
  EXPECT_EQ(member->decision().code, 0);
}

TEST_F(Agents, TellTheEndBeforeTheLeaderLeaves) {
  AgentPointer member = join(options_of(1));
  ASSERT_TRUE(serve_until({leader_.get(), member.get()}, [&] { return is_running(*member, 1); }));
  std::thread other([&] {
    member->report_end(1, {2, "rank 1 on b ended with exit code 2"});
    serve_until({member.get()}, [&] { return member->decision().kind == Kind::end; });
    EXPECT_EQ(member->decision().reason, "rank 1 on b ended with exit code 2");
    member.reset();
  });
  leader_->report_end(1, {1, "rank 0 on a ended with exit code 1", true});
  ASSERT_TRUE(serve_until({leader_.get()}, [&] { return leader_->decision().kind == Kind::end; }));
  leader_->drain_followers(kLimit);
  leader_.reset();
  other.join();
}

TEST_F(Agents, RestartAfterAFailureThatTheCauseIsNamedOf) {
  const AgentPointer member = join(options_of(1));
  const std::vector<Agent*> both{leader_.get(), member.get()};
  ASSERT_TRUE(serve_until(both, [&] { return is_running(*member, 1); }));
  // The host of the cause reports last, because its other ranks take long to end.
  leader_->report_end(1,
                      {.code = 1, .description = "follows", .since_failure = milliseconds(1'000)});
  member->report_end(
      1, {.code = 137, .description = "is the cause", .since_failure = milliseconds(9'000)});
  ASSERT_TRUE(serve_until(both, [&] { return is_running(*member, 2); }));
  EXPECT_EQ(member->decision().reason, "is the cause");
  EXPECT_TRUE(member->decision().is_restart);
  EXPECT_THAT(member->decision().blame, HasSubstr(" (1)"));
}

TEST_F(Agents, TellRanksOfAFailureOfAnotherHost) {
  const AgentPointer member = join(options_of(1));
  const std::vector<Agent*> both{leader_.get(), member.get()};
  ASSERT_TRUE(serve_until(both, [&] { return is_running(*member, 1); }));
  for (Agent* of : both) {
    auto rank = std::async(std::launch::async, [&] {
      RunStatus status(store_of(*of).with_prefix(round_prefix(1).substr(1)), 2);
      return status.wait_for_failure(kLimit);
    });
    member->post_failure(1, {1, "b", 1, "error: rank 1 on b was killed", true});
    leader_->post_failure(1, {0, "a", 1, "error: another", true});
    ASSERT_TRUE(serve_until(
        both, [&] { return rank.wait_for(milliseconds(0)) == std::future_status::ready; }));
    const auto failure = rank.get();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->code, 1);
  }
}

TEST_F(Agents, LoseOneThatEnds) {
  AgentPointer member = join(options_of(1));
  ASSERT_TRUE(serve_until({leader_.get(), member.get()}, [&] { return is_running(*leader_, 1); }));
  member.reset();
  leader_->report_end(1, {1, "follows", true});
  ASSERT_TRUE(serve_until({leader_.get()}, [&] { return leader_->decision().is_restart; }));
  EXPECT_THAT(leader_->decision().reason, HasSubstr("its launcher has ended"));
  EXPECT_THAT(said_, HasSubstr("is lost: its launcher has ended")) << "at once";
  EXPECT_THAT(leader_->waiting_text(), HasSubstr("1 of 2 hosts is available"));
  member = join(options_of(1));
  EXPECT_TRUE(serve_until({leader_.get(), member.get()}, [&] { return is_running(*member, 2); }))
      << "another takes its place";
}

TEST_F(Agents, LeaveOnlyWhereTheRunCanGoOn) {
  AgentOptions options = options_of(1);
  const AgentPointer fixed = join(options);
  EXPECT_FALSE(fixed->leave());
  EXPECT_FALSE(leader_->leave());
}

TEST_F(ElasticAgents, LeaveARun) {
  const AgentPointer member = join(options_of(1));
  ASSERT_TRUE(serve_until({leader_.get(), member.get()},
                          [&] { return is_running(*member, 1) && is_running(*leader_, 1); }));
  EXPECT_FALSE(leader_->leave());
  EXPECT_TRUE(member->leave());
  ASSERT_TRUE(serve_until({leader_.get(), member.get()},
                          [&] { return member->decision().kind == Kind::stop; }));
  member->report_end(1, {143, "rank 1 ended with exit code 143"});
  leader_->report_end(1, {143, "rank 0 ended with exit code 143"});
  ASSERT_TRUE(serve_until({leader_.get(), member.get()}, [&] { return is_running(*leader_, 2); }));
  EXPECT_EQ(leader_->decision().members, std::vector<std::string>{leader_->id()});
  leader_.reset();
  ASSERT_TRUE(serve_until({member.get()}, [&] { return !member->lost_reason().empty(); }));
  EXPECT_FALSE(member->leave()) << "nobody would answer";
}

TEST_F(Agents, RefuseAPlaceThatIsTaken) {
  const AgentPointer member = join(options_of(1)), second = join(options_of(1));
  const std::string refusal = message_of([&] {
    serve_until({leader_.get(), member.get(), second.get()}, [] { return false; });
  });
  EXPECT_THAT(refusal, HasSubstr("host 1 was started twice"));
}

TEST_F(Agents, RefuseALauncherOfAnotherRun) {
  AgentOptions other = options_of(1);
  other.run_name = "77";
  const AgentPointer member = join(other);
  const std::string refusal = message_of([&] {
    serve_until({leader_.get(), member.get()}, [] { return false; });
  });
  const std::string reason =
      "it belongs to the run '77', that of the first host to a run without --rdzv-id";
  EXPECT_THAT(refusal, HasSubstr("the first host refuses this launcher: " + reason));
  EXPECT_THAT(leader_->waiting_text(), HasSubstr("1 of 2 hosts is available"));
  EXPECT_THAT(leader_->waiting_text(), HasSubstr(" was refused: " + reason));
}

TEST_F(Agents, NoticeThatTheLeaderHasEnded) {
  const AgentPointer member = join(options_of(1));
  ASSERT_TRUE(serve_until({leader_.get(), member.get()}, [&] { return is_running(*member, 1); }));
  EXPECT_EQ(member->lost_reason(), "");
  leader_.reset();
  ASSERT_TRUE(serve_until({member.get()}, [&] { return !member->lost_reason().empty(); }));
  const StoreAddress relay{member->store_address(), member->store_port()};
  EXPECT_THAT(message_of([&] { connect_to_store(relay, {.timeout = milliseconds(300)}); }),
              HasSubstr("does not answer"))
      << "a rank that starts now is not kept waiting";
}

TEST(Agent, LeadsOrFollowsByWhoeverHasThePort) {
  AgentOptions options;
  options.membership = {.min_hosts = 1, .max_hosts = 2, .last_call = milliseconds(60'000)};
  options.master_port = ListeningSocket({.port = 0, .loopback_only = true}).port();
  const AgentPointer leader = Agent::join(options);
  auto joining = std::async(std::launch::async, [&] { return Agent::join(options); });
  ASSERT_TRUE(serve_until({leader.get()}, [&] {
    return joining.wait_for(milliseconds(0)) == std::future_status::ready;
  }));
  const AgentPointer member = joining.get();
  EXPECT_TRUE(serve_until({leader.get(), member.get()}, [&] { return is_running(*member, 1); }));
}

}  // namespace
}  // namespace megatron
