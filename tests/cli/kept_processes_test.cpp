// --inprocess-restart: the processes of ranks that have not failed continue as ranks of the next
// start, with the model that they have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "cli/logged_losses.h"
#include "cli/running_launch.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::HasSubstr;

Args tiny_run(const std::string& more) {
  return joined(words("-- pretrain gpt --mock-data --tokenizer-type NullTokenizer --vocab-size 64 "
                      "--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
                      "--micro-batch-size 1 --global-batch-size 12 --lr 1e-3 --device cpu "
                      "--eval-iters 0 --log-interval 1 "),
                words(more));
}

struct Layout {
  int ranks = 2;
  const char* flags = "";
};

/// Returns the CPUs that each of the processes may run on.
std::multiset<std::string> cpus_of(const std::vector<pid_t>& processes) {
  std::multiset<std::string> cpus;
  for (const pid_t process : processes) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("Cpus_allowed_list:")) cpus.insert(line);
  }
  return cpus;
}

class KeptProcesses : public testing::TestWithParam<Layout> {};

/// Kills the last rank twice in the middle of a long run. The others are kept.
TEST_P(KeptProcesses, GiveTheLossesOfARunWithoutFailures) {
  const auto [ranks, layout] = GetParam();
  const std::string flags = std::string(layout) + " --train-iters 20000",
                    count = std::to_string(ranks), kept = std::to_string(ranks - 1);
  const TemporaryFolder folder;
  const std::string saved = (folder / "run").string();
  const RunningLaunch launch(
      joined(words("--nproc-per-node " + count + " --max-restarts 3 --grace-seconds 5"),
             tiny_run(flags + " --inprocess-restart --save-interval 10 " + "--save " + saved +
                      " --load " + saved)));
  const std::string has_saved = "successfully saved checkpoint";
  for (const int restart : {1, 2}) {
    ASSERT_TRUE(launch.wait_for(has_saved, launch.count(has_saved) + 2)) << launch.output();
    const std::vector<pid_t> before = launch.ranks();
    const std::multiset<std::string> cpus = cpus_of(before);
    ASSERT_EQ(before.size(), static_cast<std::size_t>(ranks));
    ::kill(before.back(), SIGKILL);
    ASSERT_TRUE(launch.wait_for(kept + " of " + count + " ranks of this host keep their processes",
                                restart))
        << launch.output();
    ASSERT_TRUE(launch.wait_for("using the model of the last start again", restart))
        << launch.output();
    ASSERT_TRUE(launch.wait_for("[before the start of training step]", restart + 1));
    EXPECT_EQ(launch.ranks().at(0), before[0]);
    EXPECT_EQ(cpus_of(launch.ranks()), cpus) << "they are divided as in the first start";
    EXPECT_NE(launch.ranks().back(), before.back());
  }
  ASSERT_TRUE(launch.wait_for(has_saved, launch.count(has_saved) + 2));
  ::kill(launch.pid(), SIGTERM);
  EXPECT_EQ(launch.wait(), 143) << launch.output();
  const Losses found = losses_in(launch.output());
  ASSERT_GE(found.size(), 40U) << launch.output();
  const RunningLaunch whole(
      joined(words("--nproc-per-node " + count),
             tiny_run(flags + " --exit-interval " + std::to_string(found.rbegin()->first))));
  ASSERT_EQ(whole.wait(), 0) << whole.output();
  EXPECT_EQ(found, losses_in(whole.output())) << "bit-identical";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, KeptProcesses,
    testing::Values(
        Layout{2, "--hidden-dropout 0.1"},
        Layout{2, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"},
        Layout{2,
               "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
               "--recompute-granularity full --recompute-method uniform "
               "--recompute-num-layers 1"},
        Layout{2, "--tensor-model-parallel-size 2 --sequence-parallel"},
        Layout{4,
               "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
               "--num-layers 4 --pipeline-schedule dualpipe-v"},
        Layout{2, "--context-parallel-size 2"},
        Layout{2,
               "--num-experts 4 --expert-model-parallel-size 2 --moe-router-topk 2 "
               "--moe-aux-loss-coeff 1e-2 --moe-token-dispatcher-type alltoall "
               "--moe-expert-placement-interval 7"},
        Layout{2, "--cpu-transport gloo"}));

TEST(KeptProcess, NeedsALauncherThatRestarts) {
  const RunningLaunch launch(
      joined(words("--nproc-per-node 2"), tiny_run("--train-iters 2 --inprocess-restart")));
  EXPECT_EQ(launch.wait(), 2);
  EXPECT_THAT(launch.output(), HasSubstr("give --max-restarts N before the --"));
}

}  // namespace
}  // namespace megatron
