// Faults of the offload folder in runs of two ranks: a full disk on one of them, a read error, and
// a killed rank. Each run ends by itself, the message names the folder, no file stays behind, and
// the last checkpoint is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/logged_losses.h"
#include "cli/running_launch.h"
#include "cli/tiny_training.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int kErrorOfTheUser = 2;

class OffloadFaults : public testing::Test {
 protected:
  /// Returns the arguments of `launch` for two ranks that offload activations and optimizer state.
  Args two_ranks(const Args& more) const {
    const Args run =
        tiny_training({"--micro-batch-size", "1", "--global-batch-size", "4", "--load", save_,
                       "--cpu-offloading", "--min-offloaded-tensor-size", "0",
                       "--optimizer-cpu-offload", "--offload-folder", scratch_.path().string()});
    return joined(joined({"--nproc-per-node", "2", "--grace-seconds", "60", "--", "pretrain"}, run),
                  more);
  }

  /// Returns a run without an end that has just saved, so that the next save is far away.
  std::unique_ptr<RunningLaunch> start() const {
    auto launch = std::make_unique<RunningLaunch>(
        two_ranks({"--save", save_, "--save-interval", "100", "--train-iters", "1000000"}));
    EXPECT_TRUE(launch->wait_for("successfully saved")) << launch->output();
    EXPECT_THAT(launch->ranks(), SizeIs(2)) << launch->output();
    return launch;
  }

  /// Expects that nothing is left of the run but a checkpoint from which another one continues.
  void expect_goes_on(const std::vector<pid_t>& ranks) const {
    EXPECT_TRUE(are_gone(ranks));
    EXPECT_TRUE(fs::is_empty(scratch_.path()));
    const std::int64_t saved = std::stoll(read_file(fs::path(save_) / kTracker));
    EXPECT_EQ(saved % 100, 0);
    const RunningLaunch resumed(two_ranks({"--train-iters", std::to_string(saved + 2)}));
    EXPECT_EQ(resumed.wait(), 0) << resumed.output();
    const Losses losses = losses_in(resumed.output());
    ASSERT_THAT(losses, SizeIs(2)) << resumed.output();
    EXPECT_EQ(losses.begin()->first, saved + 1);
  }

  static constexpr const char* kTracker = "latest_checkpointed_iteration.txt";
  const TemporaryFolder scratch_{fs::temp_directory_path()}, folder_;
  const std::string save_ = (folder_ / "save").string();
};

/// Returns the offload files that a process holds open. They have no name in their folder.
std::vector<fs::path> offload_files(pid_t process) {
  std::vector<fs::path> files;
  std::error_code ended;
  for (const auto& entry :
       fs::directory_iterator("/proc/" + std::to_string(process) + "/fd", ended))
    if (fs::read_symlink(entry.path(), ended).string().find("/.offload-") != std::string::npos)
      files.push_back(entry.path());
  return files;
}

TEST_F(OffloadFaults, AFullDiskOfOneRankEndsTheRun) {
  const auto launch = start();
  const std::vector<pid_t> ranks = launch->ranks();
  const rlimit none{0, 0};
  ASSERT_EQ(::prlimit(ranks.at(1), RLIMIT_FSIZE, &none, nullptr), 0);
  EXPECT_EQ(launch->wait(), kErrorOfTheUser) << launch->output();
  EXPECT_THAT(launch->output(), HasSubstr("error: cannot write to the offload folder " +
                                          scratch_.path().string() + ": File too large (EFBIG)"));
  expect_goes_on(ranks);
}

TEST_F(OffloadFaults, AReadErrorOfOneRankEndsTheRun) {
  const auto launch = start();
  const std::vector<pid_t> ranks = launch->ranks();
  const std::vector<fs::path> files = offload_files(ranks.at(1));
  ASSERT_FALSE(files.empty());
  // What is written grows the file again, so it is cut until a read finds nothing.
  ASSERT_TRUE(RunningLaunch::becomes_true([&] {
    for (int cut = 0; cut < 1000; ++cut)
      for (const fs::path& file : files)
        if (::truncate(file.c_str(), 0) != 0) return true;
    return launch->output().find("error: ") != std::string::npos;
  })) << launch->output();
  EXPECT_EQ(launch->wait(), kErrorOfTheUser) << launch->output();
  EXPECT_THAT(launch->output(), HasSubstr("error: cannot read from the offload folder " +
                                          scratch_.path().string() + ": Input/output error (EIO)"));
  expect_goes_on(ranks);
}

TEST_F(OffloadFaults, AKilledRankEndsTheRun) {
  const auto launch = start();
  const std::vector<pid_t> ranks = launch->ranks();
  ::kill(ranks.at(1), SIGKILL);
  EXPECT_EQ(launch->wait(), 128 + SIGKILL) << launch->output();
  EXPECT_THAT(launch->output(), HasSubstr("rank 1 was killed by signal 9 (SIGKILL)"));
  expect_goes_on(ranks);
}

}  // namespace
}  // namespace megatron
