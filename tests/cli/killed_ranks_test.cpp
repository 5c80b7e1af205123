// Kills one rank of a model with experts, or of a sequence over several ranks, while it trains: all
// ranks end and the launcher names the first cause. A resumed run has the losses of a run that was
// never killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

#include "cli/logged_losses.h"
#include "cli/running_launch.h"
#include "cli/tiny_training.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

Args four_ranks(const Args& layout, const Args& more) {
  return joined(joined({"--nproc-per-node", "4", "--grace-seconds", "60", "--", "pretrain"},
                       tiny_training({"--micro-batch-size", "1", "--global-batch-size", "8",
                                      "--train-iters", "100000"})),
                joined(layout, more));
}

/// Kills each victim in a run that continues the one before.
void expect_goes_on(const Args& layout, const std::vector<std::size_t>& victims) {
  const TemporaryFolder folder;
  const std::string save = (folder / "save").string();
  Losses killed;
  for (const std::size_t victim : victims) {
    SCOPED_TRACE("rank " + std::to_string(victim));
    const bool resumes = !killed.empty();
    const RunningLaunch launch(
        four_ranks(layout, {"--save", save, "--load", save, "--save-interval", "5"}));
    ASSERT_TRUE(launch.wait_for("successfully saved", 2)) << launch.output();
    const std::vector<pid_t> ranks = launch.ranks();
    ASSERT_THAT(ranks, SizeIs(4));
    const auto start = std::chrono::steady_clock::now();
    ::kill(ranks[victim], SIGKILL);
    EXPECT_EQ(launch.wait(), 128 + SIGKILL) << launch.output();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_THAT(launch.output(),
                HasSubstr("rank " + std::to_string(victim) + " was killed by signal 9 (SIGKILL)"));
    EXPECT_TRUE(are_gone(ranks));
    const Losses losses = losses_in(launch.output());
    ASSERT_GE(losses.size(), 10);
    EXPECT_EQ(losses.begin()->first % 5, 1) << "starts after a save";
    EXPECT_EQ(resumes, losses.begin()->first > 1);
    for (const auto& [iteration, loss] : losses) {
      const auto [known, is_new] = killed.emplace(iteration, loss);
      EXPECT_EQ(known->second, loss) << "iteration " << iteration << " came out otherwise";
    }
  }
  const std::int64_t last = std::prev(killed.end())->first;
  const RunningLaunch whole(four_ranks(layout, {"--exit-interval", std::to_string(last)}));
  EXPECT_EQ(whole.wait(), 0) << whole.output();
  EXPECT_EQ(losses_in(whole.output()), killed);
}

TEST(KilledRanks, ExpertsGoOnAsIfNeverKilled) {
  expect_goes_on({"--num-experts", "4", "--moe-ffn-hidden-size", "16", "--moe-aux-loss-coeff",
                  "0.01", "--tensor-model-parallel-size", "2", "--expert-model-parallel-size", "2",
                  "--moe-token-dispatcher-type", "alltoall"},
                 {0, 1, 2, 3});
}

TEST(KilledRanks, ASequenceOverAllRanksGoesOnAsIfNeverKilled) {
  expect_goes_on({"--context-parallel-size", "4", "--use-distributed-optimizer"}, {0, 2});
}

}  // namespace
}  // namespace megatron
