// A run whose hosts come and go, with several launchers on one machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <regex>

#include "cli/running_launch.h"
#include "megatron/base/listening_socket.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

const Args kTinyTraining = words(
    "-- pretrain gpt --mock-data --tokenizer-type NullTokenizer --vocab-size 64 --num-layers 2 "
    "--hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 "
    "--micro-batch-size 1 --global-batch-size 12 --lr 1e-3 --device cpu --log-interval 1");

/// Returns the loss of each step as printed last.
std::map<int, double> losses(const std::string& log) {
  static const std::regex step(R"( iteration +(\d+)/[^\n]*lm loss: ([^ ]+))");
  std::map<int, double> found;
  for (std::sregex_iterator i(log.begin(), log.end(), step), end; i != end; ++i)
    found[std::stoi(i->str(1))] = std::stod(i->str(2));
  return found;
}

class Elastic : public testing::Test {
 protected:
  /// A run begins when all hosts are there, or `last_call` seconds after the first.
  struct Times {
    int last_call = 60, settle = 1;
  };

  std::unique_ptr<RunningLaunch> start(const std::string& hosts, int steps, const Times& times,
                                       const std::string& more = "") const {
    const Args flags = words(
        "--nnodes " + hosts + " --master-addr 127.0.0.1 --master-port " + std::to_string(port_) +
        " --last-call-seconds " + std::to_string(times.last_call) + " --settle-seconds " +
        std::to_string(times.settle) + " --max-restarts 9 --grace-seconds 5 --join-seconds 60");
    const Args files = words("--save-interval 10 --save " + saved_ + " --load " + saved_ +
                             " --train-iters " + std::to_string(steps) + " " + more);
    return std::make_unique<RunningLaunch>(joined(joined(flags, kTinyTraining), files));
  }
  std::unique_ptr<RunningLaunch> start(const std::string& hosts, int steps) const {
    return start(hosts, steps, Times());
  }

  static bool starts_its_rank(const RunningLaunch& launch) {
    return RunningLaunch::becomes_true([&] { return launch.ranks().size() == 1; });
  }

  /// The curve must be that of one rank, although sums are divided differently now and then.
  static void expect_losses_of_one_rank(const std::string& log, int steps) {
    const RunningLaunch alone(joined(kTinyTraining, {"--train-iters", std::to_string(steps)}));
    ASSERT_EQ(alone.wait(), 0) << alone.output();
    const std::map<int, double> expected = losses(alone.output()), found = losses(log);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(steps));
    ASSERT_EQ(found.size(), static_cast<std::size_t>(steps)) << log;
    for (const auto& [step, loss] : expected)
      EXPECT_NEAR(found.at(step), loss, 2e-5 * loss) << step;
  }

  const TemporaryFolder folder_;
  const std::string saved_ = (folder_ / "run").string();
  const std::int64_t port_ = ListeningSocket({.port = 0, .loopback_only = true}).port();
};

/// Two hosts, of which one is lost; a third one comes. Nobody has to do anything about it.
TEST_F(Elastic, HostsComeAndGo) {
  constexpr int kSteps = 1500;
  const Times times{.last_call = 8};  // for two of three
  const auto first = start("1:3", kSteps, times);
  std::this_thread::sleep_for(milliseconds(500));  // the first one has the store
  const auto second = start("1:3", kSteps, times);
  ASSERT_TRUE(first->wait_for("successfully saved checkpoint")) << first->output();
  ASSERT_EQ(second->ranks().size(), 1U) << second->output();

  ::kill(second->pid(), SIGKILL);  // with its rank
  ASSERT_TRUE(first->wait_for("restart 1 of 9 on 1 host: ")) << first->output();
  ASSERT_TRUE(first->wait_for("[before the start of training step]", 2)) << first->output();

  const auto third = start("1:3", kSteps, times);
  ASSERT_TRUE(first->wait_for("2 hosts are available instead of 1: the ranks save and stop"))
      << first->output();
  ASSERT_TRUE(third->wait_for("start 3 on 2 hosts: 2 hosts are available instead of 1"))
      << third->output();
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(third->wait(), 0) << third->output();
  expect_losses_of_one_rank(first->output(), kSteps);
}

/// Hosts come while the ranks start: a launcher may first hear of a start when it is to end.
TEST_F(Elastic, HostsComeWhileRanksStart) {
  constexpr int kSteps = 30;
  const Times times{.last_call = 2, .settle = 0};
  for (int i = 0; i < 3; ++i) {
    fs::remove_all(saved_);
    const auto first = start("1:4", kSteps, times);
    ASSERT_TRUE(first->wait_for("using world size: 1")) << first->output();
    const auto second = start("1:4", kSteps, times), third = start("1:4", kSteps, times),
               fourth = start("1:4", kSteps, times);
    for (const auto* launch : {&first, &second, &third, &fourth})
      EXPECT_EQ((*launch)->wait(), 0) << (*launch)->output();
  }
}

/// One launcher is stopped, as when its host is evicted: its ranks save, and the run continues.
TEST_F(Elastic, AHostLeaves) {
  constexpr int kSteps = 400;
  const auto first = start("1:2", kSteps);
  std::this_thread::sleep_for(milliseconds(500));  // the first one has the store
  const auto second = start("1:2", kSteps);
  ASSERT_TRUE(first->wait_for("successfully saved checkpoint")) << first->output();
  ::kill(second->pid(), SIGTERM);
  EXPECT_EQ(second->wait(), 143) << second->output();
  EXPECT_THAT(second->output(), HasSubstr("this host leaves the run"));
  ASSERT_TRUE(first->wait_for("start 2 on 1 host: host ")) << first->output();
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_THAT(first->output(), Not(HasSubstr("restart 1 of")));
  expect_losses_of_one_rank(first->output(), kSteps);
}

/// A spare host waits, and takes the place of one that is lost.
TEST_F(Elastic, ASpareHostTakesOver) {
  constexpr int kSteps = 800;
  const auto first = start("1:2", kSteps);
  std::this_thread::sleep_for(milliseconds(500));  // the first one has the store
  const auto second = start("1:2", kSteps);
  ASSERT_TRUE(starts_its_rank(*second)) << second->output();
  const auto spare = start("1:2", kSteps);
  ASSERT_TRUE(first->wait_for("successfully saved checkpoint")) << first->output();
  ::kill(second->pid(), SIGKILL);
  ASSERT_TRUE(spare->wait_for("restart 1 of 9 on 2 hosts: host ")) << spare->output();
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(spare->wait(), 0) << spare->output();
  expect_losses_of_one_rank(first->output(), kSteps);
}

/// The host behind the lost one keeps its process, whose rank moves up.
TEST_F(Elastic, AKeptRankMovesUpWhenASpareHostTakesOver) {
  constexpr int kSteps = 800;
  std::vector<std::unique_ptr<RunningLaunch>> hosts;
  for (int host = 0; host < 4; ++host) {
    if (host == 3) {
      ASSERT_TRUE(starts_its_rank(*hosts[2])) << hosts[2]->output();
    }
    hosts.push_back(start("1:3", kSteps, Times(), "--inprocess-restart"));
    std::this_thread::sleep_for(milliseconds(1500));  // they have their places in this order
  }
  ASSERT_TRUE(hosts[0]->wait_for("successfully saved checkpoint")) << hosts[0]->output();
  ::kill(hosts[1]->pid(), SIGKILL);
  ASSERT_TRUE(hosts[3]->wait_for("restart 1 of 9 on 3 hosts: host ")) << hosts[3]->output();
  for (const std::size_t host : {0U, 2U, 3U})
    EXPECT_EQ(hosts[host]->wait(), 0) << hosts[host]->output();
  for (const std::size_t host : {0U, 2U})
    EXPECT_THAT(hosts[host]->output(), HasSubstr("1 of 1 ranks of this host keep their processes"));
  EXPECT_THAT(hosts[0]->output(), Not(HasSubstr("restart 2 of 9")));
  expect_losses_of_one_rank(hosts[0]->output(), kSteps);
}

/// Nobody waits, and another launcher comes with the number of the lost one.
TEST_F(Elastic, AHostIsReplaced) {
  constexpr int kSteps = 400;
  const auto first = start("2", kSteps), second = start("2", kSteps);
  (void)second;
  EXPECT_EQ(first->wait(), 2) << "a fixed number of hosts needs --node-rank";
  const auto leader = start("2:2 --node-rank 0", kSteps);
  const auto member = start("2:2 --node-rank 1", kSteps);
  ASSERT_TRUE(leader->wait_for("successfully saved checkpoint")) << leader->output();
  ::kill(member->pid(), SIGKILL);
  ASSERT_TRUE(leader->wait_for("waiting: 1 of 2 hosts is available")) << leader->output();
  const auto again = start("2:2 --node-rank 1", kSteps);
  EXPECT_EQ(leader->wait(), 0) << leader->output();
  EXPECT_EQ(again->wait(), 0) << again->output();
  expect_losses_of_one_rank(leader->output(), kSteps);
}

/// Its launcher has no other rank to wait for, and tells the other host all the same.
TEST_F(Elastic, TheOnlyRankOfAHostIsKilled) {
  for (const bool is_first : {true, false}) {
    const auto leader = start("2 --node-rank 0", 100'000);
    const auto member = start("2 --node-rank 1", 100'000);
    ASSERT_TRUE(leader->wait_for("iteration ")) << leader->output();
    const RunningLaunch &killed = is_first ? *leader : *member,
                        &other = is_first ? *member : *leader;
    const auto start = std::chrono::steady_clock::now();
    ::kill(killed.ranks().at(0), SIGKILL);
    ASSERT_TRUE(other.wait_for("restart 1 of 9 on 2 hosts: rank ")) << other.output();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    EXPECT_THAT(other.output(), HasSubstr("was killed by signal 9 (SIGKILL)"));
    ::kill(leader->pid(), SIGTERM);
    ::kill(member->pid(), SIGTERM);
    leader->wait();
    member->wait();
  }
}

/// Twice the same number by mistake.
TEST_F(Elastic, AHostThatIsStartedTwiceIsNamed) {
  const auto leader = start("3 --node-rank 0", 10);
  const auto one = start("3 --node-rank 1", 10);
  ASSERT_TRUE(leader->wait_for("waiting: 2 of 3 hosts are available")) << leader->output();
  const auto other = start("3 --node-rank 1", 10);
  EXPECT_EQ(other->wait(), 2);
  EXPECT_THAT(other->output(),
              HasSubstr("the first host refuses this launcher: host 1 was started twice, on "));
  EXPECT_THAT(other->output(), HasSubstr("start one launcher on each host"));
}

}  // namespace
}  // namespace megatron
