// Runs on two "hosts" of two ranks, which are two launchers on this machine with working folders
// of their own, so that the relative --non-persistent-local-ckpt-dir is another one on each. Ranks
// and hosts are lost; the run continues at the last finished step, with the losses of a run without
// faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>

#include "cli/logged_losses.h"
#include "cli/running_launch.h"
#include "cli/tiny_training.h"
#include "megatron/base/listening_socket.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

/// Returns a port of this host that nobody listens at.
std::string unused_port() {
  return std::to_string(ListeningSocket({.port = 0, .loopback_only = true}).port());
}

/// Returns the iterations of the log lines "<before> iteration <number> …".
std::int64_t last_number_after(const std::string& log, const std::string& before) {
  const std::size_t at = log.rfind(before);
  return at == std::string::npos ? -1 : std::stoll(log.substr(at + before.size()));
}

class LocalCheckpoints : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const std::string save_ = (temporary_ / "save").string(), port_ = unused_port();
  const Args replication_{"--replication"};

  fs::path host(int number) const { return temporary_ / ("host" + std::to_string(number)); }

  Args training(std::int64_t num_iterations) const {
    return joined({"pretrain"},
                  tiny_training({"--micro-batch-size", "1", "--global-batch-size", "8",
                                 "--use-distributed-optimizer", "--attention-dropout", "0.1",
                                 "--train-iters", std::to_string(num_iterations)}));
  }
  Args saving(const Args& more) const {
    return joined({"--save", save_, "--load", save_, "--save-interval", "1000",
                   "--non-persistent-save-interval", "1", "--non-persistent-ckpt-type", "local",
                   "--non-persistent-local-ckpt-dir", "fast"},
                  more);
  }
  std::unique_ptr<RunningLaunch> start(int number, const Args& more,
                                       std::int64_t num_iterations = 30) const {
    fs::create_directories(host(number));
    return std::make_unique<RunningLaunch>(
        joined({"--nproc-per-node", "2", "--nnodes", "2", "--node-rank", std::to_string(number),
                "--master-addr", "127.0.0.1", "--master-port", port_, "--max-restarts", "3",
                "--grace-seconds", "5", "--"},
               joined(training(num_iterations), saving(more))),
        host(number));
  }
  Losses losses_without_faults(std::int64_t num_iterations = 30) const {
    const RunningLaunch whole(joined({"--nproc-per-node", "4", "--"}, training(num_iterations)));
    EXPECT_EQ(whole.wait(), 0) << whole.output();
    return losses_in(whole.output());
  }
  /// Expects that what the log shows after the last start continues after the last saved step, and
  /// that its losses are `expected`.
  static void expect_goes_on(const std::string& log, const Losses& expected) {
    const std::size_t start = log.rfind("Loading from a non-persistent checkpoint");
    ASSERT_NE(start, std::string::npos) << log;
    const std::string before = log.substr(0, start), after = log.substr(start);
    const Losses losses = losses_in(after);
    ASSERT_FALSE(losses.empty()) << log;
    EXPECT_GT(losses.begin()->first,
              last_number_after(before, "successfully saved checkpoint from iteration"))
        << "a finished step is repeated";
    for (const auto& [iteration, loss] : losses_in(before)) EXPECT_EQ(expected.at(iteration), loss);
    for (const auto& [iteration, loss] : losses) EXPECT_EQ(expected.at(iteration), loss);
    EXPECT_EQ(losses.rbegin()->first, expected.rbegin()->first);
  }
};

TEST_F(LocalCheckpoints, AKilledRankRepeatsNoStep) {
  const auto first = start(0, replication_), second = start(1, replication_);
  ASSERT_TRUE(first->wait_for("successfully saved", 7)) << first->output();
  const std::vector<pid_t> ranks = second->ranks();
  ASSERT_THAT(ranks, SizeIs(2));
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  expect_goes_on(first->output(), losses_without_faults());
  EXPECT_THAT(first->output(), Not(HasSubstr("of the checkpoint between hosts")));
}

TEST_F(LocalCheckpoints, ALostHostIsReplacedByASpareWithAnEmptyFolder) {
  const auto first = start(0, replication_);
  auto second = start(1, replication_);
  ASSERT_TRUE(first->wait_for("successfully saved", 5)) << first->output();
  const std::vector<pid_t> ranks = second->ranks();
  second.reset();  // the launcher dies, and its ranks with it
  EXPECT_TRUE(are_gone(ranks));
  fs::remove_all(host(1));
  second = start(1, replication_);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  expect_goes_on(first->output(), losses_without_faults());
  EXPECT_THAT(first->output(), HasSubstr("of the checkpoint between hosts"));
}

TEST_F(LocalCheckpoints, ALostHostOfRankZeroIsReplaced) {
  auto first = start(0, joined(replication_, {"--exit-interval", "9"}));
  auto second = start(1, joined(replication_, {"--exit-interval", "9"}));
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  const std::string log = first->output();
  fs::remove_all(host(0));
  fs::remove_all(save_);
  first = start(0, replication_);
  second = start(1, replication_);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  expect_goes_on(log + first->output(), losses_without_faults());
}

TEST_F(LocalCheckpoints, WithoutAnyCopyOfAShardThePersistentOneIsLoaded) {
  const Args end{"--exit-interval", "9", "--save-interval", "6"};
  auto first = start(0, joined(replication_, end)), second = start(1, joined(replication_, end));
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  fs::remove_all(fs::path(save_) / "iter_0000009");
  write_file_atomically(fs::path(save_) / "latest_checkpointed_iteration.txt", "6");
  for (int number : {0, 1})
    fs::remove(host(number) / "fast" / "iter_0000009" / "optimizer_00003.safetensors");
  first = start(0, replication_);
  second = start(1, replication_);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_THAT(first->output(),
              HasSubstr("WARNING: the local checkpoint of iteration 9 cannot be used, an older one "
                        "is looked for: the folders fast of all hosts hold 7 of its 8 files"));
  const Losses losses = losses_in(first->output()), expected = losses_without_faults();
  EXPECT_EQ(losses.begin()->first, 7);
  for (const auto& [iteration, loss] : losses) EXPECT_EQ(expected.at(iteration), loss);
}

TEST_F(LocalCheckpoints, OneHostGoesOnAloneWithTheCopiesOfTheOther) {
  const auto first = start(0, replication_, 9), second = start(1, replication_, 9);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  fs::remove_all(save_);
  const RunningLaunch alone(
      joined({"--nproc-per-node", "2", "--"},
             joined(training(12), saving({"--non-persistent-save-interval", "1"}))),
      host(1));
  EXPECT_EQ(alone.wait(), 0) << alone.output();
  EXPECT_EQ(losses_in(alone.output()).begin()->first, 10);
}

}  // namespace
}  // namespace megatron
