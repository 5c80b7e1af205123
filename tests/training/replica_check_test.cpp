// When a run compares the weights of its replicas: no checkpoint holds a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/parallel/rank_threads.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class ReplicaCheckOfRuns : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const std::string save_ = (temporary_ / "save").string(), fast_ = (temporary_ / "fast").string();

  /// Trains two replicas with different weights, which are compared every third of 7 iterations.
  /// Returns the message of the comparison.
  std::string train_broken(std::vector<std::string> flags) const {
    flags.insert(flags.end(), {"--save", save_, "--check-weight-hash-across-dp-replicas-interval",
                               "3", "--train-iters", "7", "--eval-iters", "0"});
    const auto run = read_run(small_run::flags(flags), 2);
    try {
      run_rank_threads(2, [&](Communicators& communicators) {
        std::ostringstream out;
        Trainer trainer =
            set_up(run, out, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
        if (communicators.rank() == 1)
          at::Tensor(trainer.state.weights->parameters().back()->value()).mul_(1.01);
        train(trainer, out);
      });
    } catch (const HardwareError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(ReplicaCheckOfRuns, LocalCheckpointsAreCompared) {
  EXPECT_THAT(train_broken({"--non-persistent-save-interval", "1", "--non-persistent-ckpt-type",
                            "local", "--non-persistent-local-ckpt-dir", fast_}),
              HasSubstr("replicas hold different weights"));
  EXPECT_THAT(committed_iterations(fast_), IsEmpty());
}

TEST_F(ReplicaCheckOfRuns, OtherCheckpointsAreAlwaysCompared) {
  EXPECT_THAT(train_broken({"--save-interval", "2"}), HasSubstr("ranks 0 and 1 differ"));
  EXPECT_THAT(committed_iterations(save_), IsEmpty());
  EXPECT_THAT(
      train_broken({"--non-persistent-save-interval", "2", "--non-persistent-ckpt-type", "global"}),
      HasSubstr("ranks 0 and 1 differ"));
  EXPECT_THAT(committed_iterations(save_ + "/non_persistent"), IsEmpty());
}

TEST_F(ReplicaCheckOfRuns, IterationsWithoutASaveAreComparedToo) {
  EXPECT_THAT(train_broken({"--save-interval", "5"}), HasSubstr("ranks 0 and 1 differ"));
  EXPECT_THAT(committed_iterations(save_), IsEmpty());
}

}  // namespace
}  // namespace megatron
