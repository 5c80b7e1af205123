// --inprocess-restart: the processes of ranks that have not failed go on as ranks of the next
// start, with the model that they have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "cli/logged_losses.h"
#include "cli/running_launch.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::HasSubstr;

Args words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

Args tiny_run(const std::string& more) {
  return joined(words("-- pretrain gpt --mock-data --tokenizer-type NullTokenizer --vocab-size 64 "
                      "--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
                      "--micro-batch-size 1 --global-batch-size 12 --lr 1e-3 --device cpu "
                      "--eval-iters 0 --log-interval 1 "),
                words(more));
}

class KeptProcesses : public testing::TestWithParam<const char*> {};

/// Kills the last rank twice in the middle of a run. Rank 0 is kept.
TEST_P(KeptProcesses, GiveTheLossesOfARunWithoutFailures) {
  const std::string flags = std::string(GetParam()) + " --train-iters 150";
  const TemporaryFolder folder;
  const std::string saved = (folder / "run").string();
  const RunningLaunch launch(
      joined(words("--nproc-per-node 2 --max-restarts 3 --grace-seconds 5"),
             tiny_run(flags + " --inprocess-restart --save-interval 10 --save " + saved +
                      " --load " + saved)));
  for (const int restart : {1, 2}) {
    ASSERT_TRUE(launch.wait_for("successfully saved checkpoint", restart)) << launch.output();
    const std::vector<pid_t> before = launch.ranks();
    ASSERT_EQ(before.size(), 2U);
    ::kill(before[1], SIGKILL);
    ASSERT_TRUE(launch.wait_for("1 of 2 ranks of this host keep their processes", restart))
        << launch.output();
    ASSERT_TRUE(launch.wait_for("using the model of the last start again", restart))
        << launch.output();
    ASSERT_TRUE(launch.wait_for("[before the start of training step]", restart + 1));
    EXPECT_EQ(launch.ranks().at(0), before[0]);
    EXPECT_NE(launch.ranks().at(1), before[1]);
  }
  EXPECT_EQ(launch.wait(), 0) << launch.output();
  const RunningLaunch whole(joined(words("--nproc-per-node 2"), tiny_run(flags)));
  ASSERT_EQ(whole.wait(), 0) << whole.output();
  const Losses expected = losses_in(whole.output());
  ASSERT_EQ(expected.size(), 150U);
  EXPECT_EQ(losses_in(launch.output()), expected) << "bit-identical";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, KeptProcesses,
    testing::Values("", "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
                    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
                    "--tensor-model-parallel-size 2 --sequence-parallel",
                    "--pipeline-model-parallel-size 2", "--context-parallel-size 2",
                    "--num-experts 4 --expert-model-parallel-size 2 --moe-router-topk 2 "
                    "--moe-aux-loss-coeff 1e-2",
                    "--cpu-transport gloo"));

TEST(KeptProcess, NeedsALauncherThatRestarts) {
  const RunningLaunch launch(
      joined(words("--nproc-per-node 2"), tiny_run("--train-iters 2 --inprocess-restart")));
  EXPECT_EQ(launch.wait(), 2);
  EXPECT_THAT(launch.output(), HasSubstr("give --max-restarts N before the --"));
}

}  // namespace
}  // namespace megatron
