// Kills a real run with kill -9 at random times while it saves after every step. All committed
// checkpoints must verify, and the resumed run must have the losses of a run that was never killed.
// MEGATRON_TEST_KILLS sets the number of kills (`make test-nightly`: 100); MEGATRON_TEST_SEED
// reproduces the times of a failure.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <thread>

#include "cli/logged_losses.h"
#include "cli/shell.h"
#include "cli/tiny_training.h"
#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using Milliseconds = std::chrono::milliseconds;

const std::vector<std::string> kFlags = tiny_training(
    {"--micro-batch-size", "2", "--global-batch-size", "2", "--train-iters", "20000"});

class KilledRuns : public testing::Test {
 protected:
  pid_t start(const std::vector<std::string>& arguments, const fs::path& log) const {
    std::vector<std::string> all{"megatron"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : all) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv((std::string(MEGATRON_BINARY_DIR) + "/bin/megatron").c_str(), pointers.data());
    ::_exit(127);
  }

  /// Runs to the end. Fails the test and prints the log if the exit code is not 0.
  std::string run(const std::vector<std::string>& arguments) const {
    const fs::path log = folder_ / "log";
    int status = 0;
    ::waitpid(start(arguments, log), &status, 0);
    std::string text = read_file(log);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
    return text;
  }

  static std::vector<std::string> training(const std::vector<std::string>& more) {
    std::vector<std::string> all{"pretrain"};
    all.insert(all.end(), kFlags.begin(), kFlags.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// Resumes training and kills it, either during its start or within some saves. Returns its
  /// output.
  std::string run_and_kill() {
    const fs::path log = folder_ / "log";
    std::vector<std::string> flags{
        "--save", save(), "--load", save(), "--save-interval", "1", "--save-retain-interval", "16"};
    flags.insert(flags.end(), killed_flags_.begin(), killed_flags_.end());
    const pid_t child = start(training(flags), log);
    if (random_() % 5 != 0) wait_for_a_save(child, log);
    std::this_thread::sleep_for(Milliseconds(random_() % 200));
    EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "the run ended by itself:\n"
                                                     << read_file(log);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return read_file(log);
  }

  static void wait_for_a_save(pid_t child, const fs::path& log) {
    for (int tries = 0; tries < 6000; ++tries) {
      if (fs::exists(log) && read_file(log).find("successfully saved") != std::string::npos) return;
      siginfo_t state{};
      if (::waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          state.si_pid == child)
        return;
      std::this_thread::sleep_for(Milliseconds(5));
    }
  }

  std::string save() const { return (folder_ / "save").string(); }
  std::int64_t saved_iteration() const {
    const fs::path tracker = folder_ / "save/latest_checkpointed_iteration.txt";
    return fs::exists(tracker) ? std::stoll(read_file(tracker)) : 0;
  }

  const TemporaryFolder folder_{fs::is_directory("/dev/shm") ? fs::path("/dev/shm")
                                                             : fs::temp_directory_path()};
  std::vector<std::string> killed_flags_;  ///< of the runs that are killed only
  std::mt19937_64 random_;

  void go_on_as_if_never_killed();
};

TEST_F(KilledRuns, GoOnAsIfNeverKilled) { go_on_as_if_never_killed(); }

TEST_F(KilledRuns, GoOnWithBackgroundSavesAsIfNeverKilled) {
  killed_flags_ = {"--async-save"};
  go_on_as_if_never_killed();
}

// Offload changes no bit, and a file of its folder does not outlive its process.
TEST_F(KilledRuns, GoOnWithOffloadAsIfNeverKilled) {
  const TemporaryFolder scratch{fs::temp_directory_path()};
  killed_flags_ = {"--optimizer-cpu-offload",
                   "--overlap-cpu-optimizer-d2h-h2d",
                   "--cpu-offloading",
                   "--min-offloaded-tensor-size",
                   "0",
                   "--offload-folder",
                   scratch.path().string()};
  go_on_as_if_never_killed();
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

void KilledRuns::go_on_as_if_never_killed() {
  const std::uint64_t kills = number_from_environment("MEGATRON_TEST_KILLS", 10);
  const std::uint64_t seed = number_from_environment("MEGATRON_TEST_SEED", std::random_device{}());
  std::cout << "MEGATRON_TEST_SEED=" << seed << ", " << kills << " kills" << std::endl;
  random_.seed(seed);

  Losses killed;
  for (std::uint64_t kill = 0; kill < kills && !HasFailure(); ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill) + " of seed " + std::to_string(seed));
    const std::int64_t before = saved_iteration();
    const std::string log = run_and_kill();
    const Losses losses = losses_in(log);
    if (!losses.empty()) {
      EXPECT_EQ(losses.begin()->first, before + 1) << log;
    }
    for (const auto& [iteration, loss] : losses) {
      const auto [known, is_new] = killed.emplace(iteration, loss);
      EXPECT_EQ(known->second, loss)
          << "iteration " << iteration << " came out otherwise when it was repeated";
    }
    if (saved_iteration() > 0) run({"checkpoint", "verify", "--all", save()});
  }

  const std::int64_t last = saved_iteration();
  ASSERT_GT(last, static_cast<std::int64_t>(kills));
  const std::string reference = (folder_ / "reference").string();
  const Losses whole =
      losses_in(run(training({"--save", reference, "--exit-interval", std::to_string(last)})));
  ASSERT_EQ(whole.size(), static_cast<std::size_t>(last));
  for (const auto& [iteration, loss] : whole) {
    if (killed.contains(iteration)) {
      EXPECT_EQ(loss, killed.at(iteration)) << "iteration " << iteration;
    }
  }
  const std::string difference = run({"checkpoint", "diff", save(), reference});
  EXPECT_EQ(difference.find("0 of "), 0u) << difference;
}

}  // namespace
}  // namespace megatron
