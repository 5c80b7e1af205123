// Checks what long runs depend on: stopping in time under any clock, signals during a save,
// checkpoint retention, and progress records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "megatron/base/exit_codes.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/observability/progress_log.h"
#include "megatron/training/run/exit_conditions.h"
#include "megatron/training/saving/checkpoint_saver.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct FakeTime {
  double monotonic_s = 1000;
  std::int64_t epoch_s = 1'800'000'000;
  RunClock clock() {
    return {.monotonic_s = [this] { return monotonic_s; }, .epoch_s = [this] { return epoch_s; }};
  }
};

class LongRunTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_ / "run";
  std::string folder(const std::string& name) const { return (root_ / name).string(); }
  static std::vector<std::int64_t> kept(const fs::path& root) { return committed_iterations(root); }
};

TEST(ExitConditions, DurationRunsOnTheMonotonicClock) {
  FakeTime time;
  TrainingConfig training;
  training.exit_duration_in_mins = 2;
  const RunClock clock = time.clock();
  const Rank rank;
  ExitConditions conditions(training, clock, nullptr, rank);
  time.epoch_s += 10L * 365 * 86400;
  EXPECT_EQ(conditions.reason(1), std::nullopt);
  time.epoch_s -= 20L * 365 * 86400;
  time.monotonic_s += 119;
  EXPECT_EQ(conditions.reason(2), std::nullopt);
  time.monotonic_s += 2;
  EXPECT_THAT(*conditions.reason(3), HasSubstr("after 2.0"));
  EXPECT_TRUE(conditions.is_urgent());
  EXPECT_EQ(conditions.exit_code(), 0);
}

TEST(JobDeadline, StopsWhenARoundAndASaveMightNotFit) {
  FakeTime time;
  const RunClock clock = time.clock();
  JobDeadline deadline(clock, time.epoch_s + 600);
  deadline.record_iteration_time(60);
  deadline.record_iteration_time(20);
  deadline.record_save_time(100);
  EXPECT_EQ(deadline.seconds_needed(), 150 + 60 + JobDeadline::kMarginS);
  time.epoch_s -= 100000;  // the wall clock does not matter after the start
  time.monotonic_s += 359;
  EXPECT_FALSE(deadline.is_near());
  time.monotonic_s += 2;
  EXPECT_TRUE(deadline.is_near());
  TrainingConfig training;
  EXPECT_THAT(*ExitConditions(training, clock, &deadline, Rank()).reason(7),
              HasSubstr("before the end of its Slurm job: 3:59 are left"));
}

TEST(JobDeadline, EnvironmentIsHeededWhereItMakesSense) {
  FakeTime time;
  const RunClock clock = time.clock();
  EXPECT_EQ(slurm_deadline(nullptr, clock, true).line, "");
  EXPECT_THAT(slurm_deadline("soon", clock, true).line,
              HasSubstr("'soon' is ignored: it is not a number of seconds"));
  const SlurmDeadline past = slurm_deadline("1700000000", clock, true);
  EXPECT_FALSE(past.deadline.has_value());
  EXPECT_THAT(past.line, HasSubstr(", has passed"));
  const SlurmDeadline near = slurm_deadline("1800003600", clock, true);
  EXPECT_TRUE(near.deadline.has_value());
  EXPECT_THAT(near.line, ContainsRegex("the Slurm job ends at [0-9-]{10} [0-9:]{8}, in 1:00:00: "
                                       "the run saves and stops before"));
  EXPECT_FALSE(slurm_deadline("1800003600", clock, false).deadline.has_value());
}

TEST_F(LongRunTest, ProgressFileIsMegatrons) {
  FakeTime time;
  setenv("TZ", "UTC", 1);
  tzset();
  ProgressLog log(root_, {.job_id = "42", .world_size = 2, .floating_point_operations = 0},
                  time.clock());
  log.start();
  time.epoch_s += 100;
  log.saved({.iteration = 10, .floating_point_operations = 4e15, .tokens = 2.5e9, .elapsed_s = 50});
  time.epoch_s += 100;
  ProgressLog second(root_, {.job_id = "43", .world_size = 2, .floating_point_operations = 4e15},
                     time.clock());
  second.start();
  time.epoch_s -= 5000;
  second.saved(
      {.iteration = 20, .floating_point_operations = 8e15, .tokens = 5e9, .elapsed_s = 400});
  EXPECT_EQ(read_file(root_ / "progress.txt"),
            "2027-01-15 08:00:00\tJob ID: 42\t# GPUs: 2\tStarting job\n"
            "2027-01-15 08:01:40\tJob ID: 42\t# GPUs: 2\tSaved checkpoint\tIteration: 10\tJob "
            "throughput: 40.0 TFLOP/s/GPU\t"
            "Cumulative throughput: 20.0 TFLOP/s/GPU\tFloating-point operations: 4.00e+15\tTokens "
            "(in billions): 2.50\n"
            "2027-01-15 08:03:20\tJob ID: 43\t# GPUs: 2\tStarting job\n"
            "2027-01-15 06:40:00\tJob ID: 43\t# GPUs: 2\tSaved checkpoint\tIteration: 20\tJob "
            "throughput: 5.0 TFLOP/s/GPU\t"
            "Cumulative throughput: 10.0 TFLOP/s/GPU\tFloating-point operations: 8.00e+15\tTokens "
            "(in billions): 5.00\n");
}

TEST_F(LongRunTest, ProgressOfAnotherWorldSizeStartsAnew) {
  FakeTime time;
  ProgressLog(root_, {.world_size = 8}, time.clock()).start();
  time.epoch_s += 1000;
  ProgressLog log(root_, {.world_size = 1, .floating_point_operations = 0}, time.clock());
  std::ofstream(root_ / "progress.txt", std::ios::app) << "a torn li\n";
  log.start();
  time.epoch_s += 10;
  log.saved({.iteration = 1, .floating_point_operations = 1e13, .tokens = 0, .elapsed_s = 10});
  EXPECT_THAT(read_file(root_ / "progress.txt"),
              HasSubstr("Cumulative throughput: 1.0 TFLOP/s/GPU"));
}

TEST_F(LongRunTest, RetainsMultiplesAndTheLast) {
  const auto outcome = small_run::run({"--save", folder("a"), "--save-interval", "2",
                                       "--save-retain-interval", "4", "--train-iters", "7"});
  EXPECT_THAT(kept(folder("a")), ElementsAre(4, 7));
  EXPECT_THAT(outcome.log,
              HasSubstr("  removed the checkpoint of iteration 2 from " + folder("a")));
  EXPECT_EQ(read_file(folder("a") + "/latest_checkpointed_iteration.txt"), "7");
}

TEST_F(LongRunTest, RetentionLeavesLinksAlone) {
  small_run::run({"--save", folder("a"), "--train-iters", "3"});
  fs::create_directory(folder("b"));
  fs::create_directory_symlink(folder("a") + "/iter_0000003", folder("b") + "/iter_0000003");
  std::ostringstream out;
  remove_unless_multiple(folder("b"), 3, 4, 10, out);
  EXPECT_TRUE(fs::exists(folder("b") + "/iter_0000003"));
  EXPECT_THAT(out.str(), HasSubstr("it is a symbolic link"));
}

TEST_F(LongRunTest, NonPersistentCheckpointsBridgeTheGap) {
  const std::vector<std::string> flags{"--save",
                                       folder("a"),
                                       "--load",
                                       folder("a"),
                                       "--save-interval",
                                       "4",
                                       "--non-persistent-save-interval",
                                       "3",
                                       "--non-persistent-ckpt-type",
                                       "global"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  auto whole = small_run::run({});
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags(with({"--exit-interval", "7"}))), out);
  train(trainer, out);
  EXPECT_THAT(kept(folder("a")), ElementsAre(4, 7));
  EXPECT_THAT(kept(folder("a") + "/non_persistent"), ElementsAre(6));
  fs::remove_all(folder("a") + "/iter_0000007");
  write_file_atomically(folder("a") + "/latest_checkpointed_iteration.txt", "4");
  const auto resumed = small_run::run(with({}));
  EXPECT_THAT(resumed.log,
              HasSubstr("Loading from a non-persistent checkpoint (non-persistent iter 6)"));
  EXPECT_EQ(resumed.trainer.state.progress, whole.trainer.state.progress);
  EXPECT_TRUE(resumed.trainer.state.weights->buckets()[0].value.equal(
      whole.trainer.state.weights->buckets()[0].value));
  const auto older = small_run::run(with({"--train-iters", "8"}));
  EXPECT_THAT(
      older.log,
      HasSubstr("WARNING: non-persistent checkpoints are older than persistent checkpoint"));
  EXPECT_THAT(small_run::run(with({"--ckpt-step", "4", "--save", folder("back")})).log,
              HasSubstr("at iteration 4\n"));
}

TEST_F(LongRunTest, ARunThatEndsAtANonPersistentCheckpointSavesIt) {
  const std::vector<std::string> flags{"--save",
                                       folder("a"),
                                       "--load",
                                       folder("a"),
                                       "--non-persistent-save-interval",
                                       "4",
                                       "--non-persistent-ckpt-type",
                                       "global"};
  small_run::run(flags);
  // As if the run had been killed before its last save.
  fs::remove_all(folder("a") + "/iter_0000008");
  fs::remove(folder("a") + "/latest_checkpointed_iteration.txt");
  EXPECT_THAT(small_run::run(flags).log, HasSubstr("non-persistent iter 8"));
  EXPECT_THAT(kept(folder("a")), ElementsAre(8));
}

/// The step that follows iteration 1 is rejected, and the checkpoint that is to repeat it has the
/// iteration of a non-persistent one, which knows nothing of that step.
TEST_F(LongRunTest, ARejectedStepIsRepeatedAlthoughANonPersistentCheckpointIsAsRecent) {
  const std::vector<std::vector<std::string>> kinds{
      {"global"}, {"local", "--non-persistent-local-ckpt-dir", folder("fast")}};
  for (const std::vector<std::string>& kind : kinds) {
    SCOPED_TRACE(kind.front());
    const std::string save = folder("rejected_" + kind.front());
    std::vector<std::string> flags{"--save",
                                   save,
                                   "--load",
                                   save,
                                   "--error-injection-rate",
                                   "1",
                                   "--error-injection-type",
                                   "persistent_error",
                                   "--non-persistent-save-interval",
                                   "1",
                                   "--non-persistent-ckpt-type"};
    flags.insert(flags.end(), kind.begin(), kind.end());
    EXPECT_EQ(small_run::run(flags).code, kExitResumeToDisambiguate);
    const std::string recent = kind.size() > 1 ? folder("fast") : save + "/non_persistent";
    EXPECT_THAT(kept(save), ElementsAre(1));
    EXPECT_THAT(kept(recent), ElementsAre(1));
    const auto resumed = small_run::run(flags);
    EXPECT_THAT(resumed.log, HasSubstr("loading checkpoint from " + save + " at iteration 1\n"));
    EXPECT_THAT(resumed.log, HasSubstr("Possible persistent error!"));
    EXPECT_EQ(resumed.code, kExitFailedOnResultValidation);
  }
}

/// Sends two signals while a checkpoint folder is being written: the save completes, and no other
/// save starts.
TEST_F(LongRunTest, SignalsDuringASaveDoNotHarmIt) {
  std::ostringstream out;
  Trainer trainer =
      set_up(read_run(small_run::flags({"--train-iters", "100000", "--lr-warmup-iters", "0",
                                        "--eval-interval", "100000", "--save-interval", "1",
                                        "--save", folder("a")})),
             out);
  std::atomic<bool> done = false;
  std::thread killer([&] {
    const auto is_saving = [&] {
      std::error_code code;
      for (const auto& entry : fs::directory_iterator(folder("a"), code)) {
        if (entry.path().filename().string().find("iter_0000003.tmp") != std::string::npos)
          return true;
      }
      return false;
    };
    while (!done && !is_saving()) std::this_thread::yield();
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGTERM);
  });
  EXPECT_EQ(train(trainer, out), 143);
  done = true;
  killer.join();
  EXPECT_THAT(out.str(), ContainsRegex("exiting program after receiving SIG(USR1|TERM)\\."));
  EXPECT_EQ(read_file(folder("a") + "/latest_checkpointed_iteration.txt"),
            std::to_string(trainer.state.progress.iteration));
  for (const auto& entry : fs::directory_iterator(folder("a")))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp")));
  const auto resumed = small_run::run({"--load", folder("a"), "--train-iters",
                                       std::to_string(trainer.state.progress.iteration + 2),
                                       "--lr-warmup-iters", "0", "--eval-interval", "100000"});
  EXPECT_EQ(resumed.trainer.state.progress.iteration, trainer.state.progress.iteration + 2);
}

TEST_F(LongRunTest, JumpingWallClockChangesNothing) {
  auto whole = small_run::run({});
  std::ostringstream out;
  Trainer trainer =
      set_up(read_run(small_run::flags({"--exit-duration-in-mins", "60", "--save", folder("a"),
                                        "--save-interval", "3", "--log-progress"})),
             out);
  std::int64_t epoch = 1'800'000'000, step = 50'000'000;
  trainer.clock.epoch_s = [&] {
    step = -step + 1'000'000;
    return epoch += step;
  };
  EXPECT_EQ(train(trainer, out), 0);
  EXPECT_EQ(trainer.state.progress, whole.trainer.state.progress);
  EXPECT_TRUE(trainer.state.weights->buckets()[0].value.equal(
      whole.trainer.state.weights->buckets()[0].value));
  EXPECT_THAT(read_file(folder("a") + "/progress.txt"),
              Not(ContainsRegex("throughput: (-|inf|nan)")));
}

TEST_F(LongRunTest, AbandonedEvaluationIsMadeByTheRunThatResumes) {
  const auto stopped = small_run::run(
      {"--exit-duration-in-mins", "1e-9", "--eval-interval", "1", "--save", folder("a")});
  EXPECT_EQ(stopped.trainer.state.progress.consumed_valid_samples, 0);
  EXPECT_THAT(stopped.log, Not(HasSubstr("validation loss")));
  const auto resumed =
      small_run::run({"--eval-interval", "1", "--load", folder("a"), "--exit-interval", "2"});
  EXPECT_THAT(resumed.log, HasSubstr("validation loss at iteration 1 |"));
  EXPECT_THAT(resumed.log, HasSubstr("validation loss at iteration 2 |"));
  EXPECT_EQ(resumed.trainer.state.progress.consumed_valid_samples, 2 * 4);
}

TEST_F(LongRunTest, SlurmsEndStopsWithACheckpoint) {
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags({"--train-iters", "1000", "--lr-warmup-iters",
                                                      "0", "--save", folder("a")})),
                           out);
  FakeTime time;
  trainer.clock = time.clock();
  int calls = 0;
  trainer.clock.monotonic_s = [&] { return time.monotonic_s + 1.0 * ++calls; };
  setenv("SLURM_JOB_END_TIME", std::to_string(time.epoch_s + 120).c_str(), 1);
  EXPECT_EQ(train(trainer, out), 0);
  unsetenv("SLURM_JOB_END_TIME");
  EXPECT_THAT(out.str(), HasSubstr("exiting program before the end of its Slurm job"));
  EXPECT_GT(trainer.state.progress.iteration, 3);
  EXPECT_LT(trainer.state.progress.iteration, 100);
  EXPECT_THAT(kept(folder("a")), ElementsAre(trainer.state.progress.iteration));
}

}  // namespace
}  // namespace megatron
