// Slows one rank of a run down, by stopping its process again and again: rank 0 names it, with the
// parts of the step, within 20 steps, and accuses no other rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <regex>
#include <thread>

#include "cli/running_launch.h"
#include "cli/tiny_training.h"

namespace megatron {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

/// Lets a process run for a fifth of the time, while this object lives.
class SlowedProcess {
 public:
  explicit SlowedProcess(pid_t pid) : pid_(pid) {}
  SlowedProcess(const SlowedProcess&) = delete;
  SlowedProcess& operator=(const SlowedProcess&) = delete;
  ~SlowedProcess() {
    is_over_ = true;
    thread_.join();
    ::kill(pid_, SIGCONT);
  }

 private:
  void run() {
    while (!is_over_) {
      ::kill(pid_, SIGSTOP);
      std::this_thread::sleep_for(milliseconds(16));
      ::kill(pid_, SIGCONT);
      std::this_thread::sleep_for(milliseconds(4));
    }
  }
  pid_t pid_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_{[this] { run(); }};
};

/// Returns the last iteration that the log shows.
std::int64_t last_iteration(const std::string& log) {
  static const std::regex line(R"( iteration +([0-9]+)/)");
  std::int64_t last = 0;
  for (std::sregex_iterator i(log.begin(), log.end(), line), end; i != end; ++i)
    last = std::stoll((*i)[1]);
  return last;
}

TEST(Stragglers, ASlowedRankIsNamedWithinTwentySteps) {
  const RunningLaunch launch(
      joined({"--nproc-per-node", "4", "--", "pretrain"},
             tiny_training({"--micro-batch-size", "2", "--global-batch-size", "32", "--num-layers",
                            "2", "--hidden-size", "96", "--seq-length", "96", "--train-iters",
                            "100000", "--log-straggler"})));
  ASSERT_TRUE(launch.wait_for("fastest and slowest ranks", 4)) << launch.output();
  const std::vector<pid_t> ranks = launch.ranks();
  ASSERT_THAT(ranks, SizeIs(4));
  ::kill(ranks[2], SIGSTOP);  // no step can end any more
  std::this_thread::sleep_for(milliseconds(300));
  const std::int64_t before = last_iteration(launch.output());
  EXPECT_THAT(launch.output(), Not(HasSubstr("straggler: rank")));
  {
    const SlowedProcess slowed(ranks[2]);
    ASSERT_TRUE(launch.wait_for("straggler: rank ")) << launch.output();
  }
  const std::string log = launch.output();
  static const std::regex named(
      "straggler: rank 2 on [^ ]+ is slower than the 3 other ranks of pipeline stage 0: "
      "(forward|backward) [0-9.]+ ms a step, ([0-9.]+) times [^\\n]* iterations [0-9]+ to "
      "([0-9]+)\\)");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(log, found, named)) << log;
  EXPECT_GE(std::stod(found[2]), 1.2) << found[0];
  EXPECT_GT(std::stoll(found[3]), before);
  EXPECT_LE(std::stoll(found[3]), before + 20) << "slow since iteration " << before;
  EXPECT_THAT(log, Not(ContainsRegex("straggler: rank [013]")));
}

}  // namespace
}  // namespace megatron
