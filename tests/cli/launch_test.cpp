// Tests `megatron launch` with real ranks: a rank is killed, the launcher receives a signal or
// dies, and ranks run on two hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <regex>
#include <thread>

#include "cli/running_launch.h"
#include "cli/shell.h"
#include "cli/tiny_training.h"
#include "megatron/base/files.h"
#include "megatron/base/listening_socket.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::SizeIs;

const Args kTraining =
    joined({"pretrain"}, tiny_training({"--micro-batch-size", "1", "--global-batch-size", "4"}));

Args long_training(const Args& flags = {}) {
  return joined(joined(joined({"--nproc-per-node", "2"}, flags), {"--"}),
                joined(kTraining, {"--train-iters", "100000"}));
}

/// Several launchers may write to one log. Each packet of the socket is one write.
TEST(Launch, EachLineOfStderrIsOneWrite) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const RunningLaunch launch(long_training(), fs::current_path(), ends[1]);
  ::close(ends[1]);
  ASSERT_TRUE(launch.wait_for(" iteration ")) << launch.output();
  ::kill(launch.ranks().at(1), SIGKILL);
  std::string text, packet(65536, '\0');
  for (ssize_t size; (size = ::recv(ends[0], packet.data(), packet.size(), 0)) > 0;) {
    text.append(packet, 0, size);
    EXPECT_EQ(packet[size - 1], '\n') << packet.substr(0, size);
  }
  ::close(ends[0]);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL);
  EXPECT_THAT(text, HasSubstr("megatron launch: rank 1 was killed by signal 9 (SIGKILL)\n"));
}

TEST(Launch, ALongLineOfStderrIsOneWrite) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const std::string name(20'000, 'x');
  const RunningLaunch launch({"--nproc-per-node", name, "--", "pretrain"}, fs::current_path(),
                             ends[1]);
  ::close(ends[1]);
  std::string packet(65536, '\0');
  const ssize_t size = ::recv(ends[0], packet.data(), packet.size(), 0);
  ::close(ends[0]);
  ASSERT_GT(size, 20'000);
  EXPECT_EQ(packet[static_cast<std::size_t>(size) - 1], '\n');
}

TEST(Launch, AKilledRankEndsAllAndIsNamed) {
  const RunningLaunch launch(long_training({"--grace-seconds", "5"}));
  ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
  const auto ranks = launch.ranks();
  ASSERT_THAT(ranks, SizeIs(2));
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL) << launch.output();
  EXPECT_THAT(launch.output(),
              HasSubstr("megatron launch: rank 1 was killed by signal 9 (SIGKILL)"));
  EXPECT_TRUE(are_gone(ranks));
}

/// The other stages wait for messages that never arrive. They exit by themselves, long before the
/// launcher would kill them.
TEST(Launch, AKilledStageEndsAllAndIsNamed) {
  const Args stages{
      "--num-layers",  "4",     "--pipeline-model-parallel-size", "4", "--global-batch-size", "16",
      "--train-iters", "100000"};
  for (const std::size_t victim : {0U, 2U}) {
    const RunningLaunch launch(joined(
        joined({"--nproc-per-node", "4", "--grace-seconds", "60", "--"}, kTraining), stages));
    ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
    const auto ranks = launch.ranks();
    ASSERT_THAT(ranks, SizeIs(4));
    const auto killed = std::chrono::steady_clock::now();
    ::kill(ranks[victim], SIGKILL);
    EXPECT_EQ(launch.wait(), 128 + SIGKILL) << launch.output();
    EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(20));
    EXPECT_THAT(launch.output(),
                HasSubstr("rank " + std::to_string(victim) + " was killed by signal 9 (SIGKILL)"));
    EXPECT_TRUE(are_gone(ranks));
  }
}

/// A stopped process closes no connection and does not respond. Rank 0 also hosts the store.
TEST(Launch, AStoppedRankEndsAllAndIsNamed) {
  const Args stages{"--num-layers",
                    "4",
                    "--pipeline-model-parallel-size",
                    "2",
                    "--global-batch-size",
                    "16",
                    "--train-iters",
                    "100000",
                    "--distributed-timeout-minutes",
                    "0.1"};
  for (const std::size_t victim : {0U, 3U}) {
    const RunningLaunch launch(
        joined(joined({"--nproc-per-node", "4", "--grace-seconds", "5", "--"}, kTraining), stages));
    ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
    const auto ranks = launch.ranks();
    ASSERT_THAT(ranks, SizeIs(4));
    const auto stopped = std::chrono::steady_clock::now();
    ::kill(ranks[victim], SIGSTOP);
    const std::string name = "rank " + std::to_string(victim),
                      process = std::to_string(ranks[victim]);
    EXPECT_TRUE(launch.wait_for(
        "megatron launch: " + name +
        " is stopped by signal 19 (SIGSTOP): the other ranks wait for it (continue it with "
        "kill -CONT " +
        process));
    EXPECT_EQ(launch.wait(), 1) << launch.output();
    EXPECT_LT(std::chrono::steady_clock::now() - stopped, std::chrono::seconds(40));
    const std::string told = launch.output();
    EXPECT_THAT(told,
                testing::ContainsRegex("megatron pretrain: error: [a-z_]+ '[^']*' on [a-z-]+: " +
                                       name + " has not arrived after 6 s \\(iteration [0-9]+; " +
                                       name + " is stopped \\(process " + process));
    EXPECT_THAT(told, HasSubstr("megatron launch: " + name +
                                " was stopped by signal 19 (SIGSTOP) and did not continue; rank "));
    EXPECT_EQ(told.find("megatron pretrain: error"), told.rfind("megatron pretrain: error"))
        << told;
    EXPECT_TRUE(are_gone(ranks));
  }
}

TEST(Launch, AStoppedRankMayGoOn) {
  const RunningLaunch launch(
      joined(joined({"--nproc-per-node", "2", "--"}, kTraining), {"--train-iters", "100000"}));
  ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
  const auto ranks = launch.ranks();
  ::kill(ranks[0], SIGSTOP);
  ASSERT_TRUE(launch.wait_for("rank 0 is stopped")) << launch.output();
  std::this_thread::sleep_for(milliseconds(1'500));
  ::kill(ranks[0], SIGCONT);
  ASSERT_TRUE(launch.wait_for("megatron launch: rank 0 continues")) << launch.output();
  const std::string before = launch.output();
  EXPECT_TRUE(RunningLaunch::becomes_true([&] {
    return launch.output().rfind(" iteration ") > before.size();
  })) << launch.output();
}

TEST(Launch, DiesWithItsRanks) {
  const RunningLaunch launch(long_training());
  ASSERT_TRUE(launch.wait_for(" iteration ")) << launch.output();
  const auto ranks = launch.ranks();
  ASSERT_THAT(ranks, SizeIs(2));
  ::kill(launch.pid(), SIGKILL);
  EXPECT_TRUE(are_gone(ranks));
}

TEST(Launch, PassesSignalsOn) {
  const RunningLaunch launch(long_training());
  ASSERT_TRUE(launch.wait_for(" iteration ")) << launch.output();
  const auto ranks = launch.ranks();
  ::kill(launch.pid(), SIGTERM);
  EXPECT_EQ(launch.wait(), 143) << launch.output();
  EXPECT_TRUE(are_gone(ranks));
}

TEST(Launch, StartsAgainWhatWasKilled) {
  const RunningLaunch launch(long_training({"--max-restarts", "1", "--grace-seconds", "5"}));
  ASSERT_TRUE(launch.wait_for(" iteration ")) << launch.output();
  const auto first = launch.ranks();
  ASSERT_THAT(first, SizeIs(2));
  ::kill(first[1], SIGKILL);
  ASSERT_TRUE(launch.wait_for("megatron launch: restart 1 of 1")) << launch.output();
  ASSERT_TRUE(RunningLaunch::becomes_true([&] {
    return launch.output().rfind(" iteration ") > launch.output().rfind("restart 1 of 1");
  }));
  const auto second = launch.ranks();
  ASSERT_THAT(second, SizeIs(2));
  EXPECT_NE(first, second);
  ::kill(second[0], SIGKILL);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL) << launch.output();
  EXPECT_TRUE(are_gone(second));
}

TEST(Launch, NamesAPortInUseAtOnce) {
  const ListeningSocket taken({.port = 0, .loopback_only = true});
  const auto start = std::chrono::steady_clock::now();
  const RunningLaunch launch(long_training({"--master-port", std::to_string(taken.port())}));
  EXPECT_EQ(launch.wait(), 2);
  EXPECT_EQ(launch.output(), "megatron launch: error: port " + std::to_string(taken.port()) +
                                 " of this host: is in use by another process\n  fix: choose "
                                 "another port with --master-port, or MASTER_PORT on every rank\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

std::string losses(const std::string& log) {
  static const std::regex loss(R"(lm loss: [^ ]+)");
  std::string found;
  for (std::sregex_iterator i(log.begin(), log.end(), loss), end; i != end; ++i)
    found += i->str() + "\n";
  return found;
}

/// Two network namespaces (two_hosts.sh), for as long as it lives.
class TwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    const auto [code, text] = shell(script_ + " up " + name_);
    if (code == 77) GTEST_SKIP() << "!! NOT RUN: " << text;
    ASSERT_EQ(code, 0) << text;
  }
  void TearDown() override { shell(script_ + " down " + name_); }

  std::string on(int host, const std::string& flags, const std::string& training) const {
    return "timeout 200 " + script_ + " on " + name_ + " " + std::to_string(host) + " " + kProgram +
           " launch --nnodes 2 --node-rank " + std::to_string(host - 1) + " --master-addr host1 " +
           flags + " -- " + training;
  }

  const std::string script_ = std::string(MEGATRON_SOURCE_DIR) + "/tests/cli/two_hosts.sh";
  const std::string name_ = "mgl" + std::to_string(::getpid() % 100'000);
};

std::string words_of(const Args& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

TEST_F(TwoHosts, TrainAsOne) {
  const std::string training = words_of(joined(kTraining, {"--train-iters", "4"}));
  const auto [code, text] =
      shell(on(2, "--nproc-per-node 2", training) + " >/dev/null & " +
            on(1, "--nproc-per-node 2", training) + "; first=$?; wait $! && exit $first");
  EXPECT_EQ(code, 0) << text;
  const auto [one_host_code, one_host] =
      shell(kProgram + " launch --nproc-per-node 4 -- " + training);
  EXPECT_EQ(one_host_code, 0) << one_host;
  EXPECT_EQ(losses(text), losses(one_host)) << text;
  EXPECT_THAT(losses(text), HasSubstr("lm loss")) << text;
}

TEST_F(TwoHosts, FailTogether) {
  const std::string training = words_of(joined(kTraining, {"--train-iters", "4"}));
  const auto [code, text] = shell(on(2, "", training + "--lr 2e-3") + " & " + on(1, "", training) +
                                  "; first=$?; wait $!; echo codes $first $?");
  EXPECT_THAT(text, HasSubstr("codes 2 2"));
  EXPECT_THAT(text, HasSubstr("megatron pretrain: error: rank 1 was started with --lr 0.002, rank "
                              "0 with --lr 0.001\n"));
}

TEST_F(TwoHosts, RestartTogetherFromTheirCheckpoint) {
  const TemporaryFolder folder;
  const fs::path log = folder / "log", saved = folder / "run";
  const std::string flags = "--max-restarts 3 --grace-seconds 5";
  const std::string training =
      words_of(joined(kTraining, {"--train-iters", "300", "--save", saved.string(), "--load",
                                  saved.string(), "--save-interval", "50"}));
  const std::string kill_a_rank =
      "for i in $(seq 300); do grep -q 'successfully saved checkpoint' " + log.string() +
      " && break; sleep 0.1; done; kill -9 $(ip netns pids " + name_ + "-2 | sort -n | tail -1); ";
  const auto [code, text] =
      shell("PATH=$PATH:/usr/sbin; " + on(1, flags, training) + " >" + log.string() +
            " & first=$!; " + on(2, flags, training) + " & second=$!; " + kill_a_rank +
            "wait $first; code=$?; wait $second; echo codes $code $?");
  EXPECT_THAT(text, HasSubstr("codes 0 0"));
  EXPECT_THAT(text, HasSubstr("megatron launch: rank 1 was killed by signal 9 (SIGKILL)\n"));
  EXPECT_THAT(text, HasSubstr("megatron launch: restart 1 of 3 on 2 hosts: rank 1 on host2 was "
                              "killed by signal 9 (SIGKILL)\n"));
  EXPECT_THAT(text, HasSubstr("megatron launch: rank 0 ended with exit code 1"));
  const std::string told = read_file(log), first_step = " iteration        1/     300 ";
  EXPECT_THAT(told, HasSubstr("successfully loaded checkpoint"));
  EXPECT_EQ(told.find(first_step), told.rfind(first_step)) << "the restart began anew";
  EXPECT_THAT(told, HasSubstr(" iteration      300/     300 "));
}

/// One of two hosts stops, with its launcher. The ranks of the other host report that they are not
/// the cause.
TEST_F(TwoHosts, AStoppedHostIsNamed) {
  const TemporaryFolder folder;
  const fs::path log = folder / "log";
  const std::string training = words_of(
      joined(kTraining, {"--train-iters", "100000", "--distributed-timeout-minutes", "0.1"}));
  const auto run = [&](int stopped, int alive) {
    // The earlier run's iterations must not be taken for this one's.
    return shell(
        "PATH=$PATH:/usr/sbin; rm -f " + log.string() + " " + log.string() + ".other; " +
        on(stopped, "--nproc-per-node 2", training) + " >" + log.string() + ".other 2>&1 & " +
        on(alive, "--nproc-per-node 2 --grace-seconds 5", training) + " >" + log.string() +
        " 2>&1 & watched=$!; " + "for i in $(seq 600); do grep -q ' iteration ' " + log.string() +
        " " + log.string() + ".other && break; sleep 0.1; done; " + "kill -STOP $(ip netns pids " +
        name_ + "-" + std::to_string(stopped) + "); wait $watched; echo code $?; " +
        "kill -9 $(ip netns pids " + name_ + "-" + std::to_string(stopped) + ")");
  };
  EXPECT_THAT(run(2, 1).second, HasSubstr("code 1"));
  EXPECT_THAT(read_file(log),
              testing::ContainsRegex("megatron pretrain: error: .*ranks? [23, ]+ (has|have) not "
                                     "arrived after 6 s.*rank [23] does not answer"));
  EXPECT_THAT(run(1, 2).second, HasSubstr("code 1"));
  EXPECT_THAT(read_file(log),
              testing::ContainsRegex("megatron pretrain: error: .*the launcher of the first host, "
                                     "which hosts the run's store at host1:29500, has not "
                                     "answered"));
  EXPECT_THAT(
      read_file(log),
      testing::ContainsRegex(
          "megatron launch: rank [23] ended with exit code 1, because another rank failed: "));
}

/// As when a host loses power: nothing answers any more. Both sides end long before the timeout of
/// ten minutes, and say what they know.
TEST_F(TwoHosts, ACutNetworkEndsBothHosts) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const std::string training = words_of(joined(kTraining, {"--train-iters", "100000"}));
  const std::string flags = "--nproc-per-node 2 --grace-seconds 5";
  const auto [code, text] = shell(
      "PATH=$PATH:/usr/sbin; " + on(1, flags, training) + " >" + log + ".1 2>&1 & first=$!; " +
      on(2, flags, training) + " >" + log + ".2 2>&1 & second=$!; " +
      "for i in $(seq 600); do grep -q ' iteration ' " + log + ".1 && break; sleep 0.1; done; " +
      "ip -n " + name_ + "-1 link set " + name_ + "-a down; begin=$SECONDS; wait $first; " +
      "code=$?; wait $second; echo codes $code $? after $((SECONDS - begin)) s");
  EXPECT_THAT(text, testing::ContainsRegex("codes 1 1 after [1-8]?[0-9] s")) << text;
  EXPECT_THAT(read_file(log + ".1"), HasSubstr("error: the connection to ranks 2, 3 on host2 is "
                                               "lost: the process died, the host is down or the "
                                               "network is cut"));
  EXPECT_THAT(
      read_file(log + ".2"),
      testing::ContainsRegex("error: .*the launcher of the first host, which hosts the run's "
                             "store at host1:29500, "));
}

}  // namespace
}  // namespace megatron
