// Runs that hang: the warning, the reports of the ranks and `megatron hang-report`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/running_launch.h"
#include "cli/shell.h"
#include "cli/tiny_training.h"
#include "megatron/base/json.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::SizeIs;

Args training_on(const std::string& ranks, const Args& flags) {
  return joined(
      joined({"--nproc-per-node", ranks, "--grace-seconds", "5", "--"},
             joined({"pretrain"}, tiny_training({"--micro-batch-size", "1", "--global-batch-size",
                                                 "8", "--train-iters", "100000"}))),
      flags);
}

std::string output_of(const std::string& command) { return shell(kProgram + " " + command).second; }

/// A rank that stands still is named within ten seconds, with the call that the others wait in.
TEST(Hangs, AreNamedLongBeforeTheTimeout) {
  const TemporaryFolder folder;
  const std::string save = folder / "run";
  const RunningLaunch launch(
      training_on("4", {"--save", save, "--tensor-model-parallel-size", "2",
                        "--hang-warning-seconds", "3", "--distributed-timeout-minutes", "0.15"}));
  ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
  const auto ranks = launch.ranks();
  ASSERT_THAT(ranks, SizeIs(4));
  ::kill(ranks[2], SIGSTOP);
  ASSERT_TRUE(RunningLaunch::becomes_true(
      [&] { return launch.output().find("warning: ") != std::string::npos; }, milliseconds(10'000)))
      << launch.output();
  EXPECT_THAT(launch.output(),
              ContainsRegex("warning: [a-z_]+ '[^']*' on [a-z-]+.*: rank 2 has not arrived after 3 "
                            "s \\(iteration [0-9]+; rank 2 is stopped"));
  EXPECT_EQ(launch.wait(), 1) << launch.output();
  EXPECT_THAT(launch.output(), HasSubstr("megatron hang-report " + save + "/hang-reports"));

  const std::string report = output_of("hang-report " + save + "/hang-reports");
  EXPECT_THAT(report, AllOf(HasSubstr("\nrank 2 blocks the others.\n"), HasSubstr("is stopped"),
                            ContainsRegex("waited [0-9.]+ s for rank 2")));
  const Json json = parse_json(output_of("hang-report --json " + save + "/hang-reports"), "report");
  EXPECT_EQ(json["culprits"], Json({2}));
  EXPECT_THAT(json["ranks"], SizeIs(4));
  EXPECT_EQ(json["ranks"][2]["state"], "stopped");
}

/// The timeout of communication is ten minutes, that of a step three seconds.
TEST(Hangs, TheTimeoutOfASectionRestartsARunThatHangs) {
  const TemporaryFolder folder;
  const std::string save = folder / "run";
  const RunningLaunch launch(
      joined({"--max-restarts", "1"},
             training_on("2", {"--save", save, "--load", save, "--save-interval", "50",
                               "--tensor-model-parallel-size", "2", "--enable-ft-package",
                               "--ft-rank-section-timeouts", "setup:60,step:5,checkpointing:5"})));
  ASSERT_TRUE(launch.wait_for("successfully saved checkpoint", 2)) << launch.output();
  const auto ranks = launch.ranks();
  ASSERT_THAT(ranks, SizeIs(2));
  ::kill(ranks[1], SIGSTOP);
  const std::string restart = "restart 1 of 1";
  ASSERT_TRUE(launch.wait_for(restart, 1)) << launch.output();
  EXPECT_THAT(
      launch.output(),
      ContainsRegex(
          "the section '(step|checkpointing)' of rank 0 is not over after 5 s "
          "\\(--ft-rank-section-timeouts\\): rank 1 has not arrived after [0-9.]+ s .*rank 1 is "
          "stopped"));
  ASSERT_TRUE(RunningLaunch::becomes_true([&] {
    const std::string output = launch.output();
    return output.find(" iteration ", output.find(restart)) != std::string::npos;
  })) << launch.output();
}

/// A rank alone has no peer that could fail, so its own watch ends it.
TEST(Hangs, TheTimeoutOfASectionEndsARankAlone) {
  const RunningLaunch launch(
      training_on("1", {"--enable-ft-package", "--ft-rank-section-timeouts", "step:0.001",
                        "--ft-num-warmup-iters", "1", "--log-interval", "1000"}));
  EXPECT_EQ(launch.wait(), 1) << launch.output();
  EXPECT_THAT(
      launch.output(),
      HasSubstr("megatron pretrain: error: the section 'step' of rank 0 is not over after "));
}

/// SIGUSR2 asks a healthy run what it does, and the run continues. The launcher passes it on.
TEST(Hangs, AHealthyRunAnswersASignal) {
  const TemporaryFolder folder;
  const std::string reports = folder / "reports";
  const RunningLaunch launch(
      training_on("2", {"--hang-report-dir", reports, "--tensor-model-parallel-size", "2"}));
  ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
  ::kill(launch.pid(), SIGUSR2);
  ASSERT_TRUE(launch.wait_for("wrote its calls and stacks to " + reports, 2)) << launch.output();
  const std::string before = launch.output();
  ASSERT_TRUE(RunningLaunch::becomes_true([&] {
    return launch.output().find(" iteration ", before.size()) != std::string::npos;
  })) << launch.output();
  const std::string report = output_of("hang-report " + reports);
  EXPECT_THAT(report, AllOf(HasSubstr("Written because: SIGUSR2"), HasSubstr("     1  ")));
  EXPECT_THAT(read_file(reports + "/rank-0.json"), HasSubstr("\"layer\": \"decoder.layers.0\""));
  ::kill(launch.pid(), SIGTERM);
  EXPECT_EQ(launch.wait(), 143) << launch.output();
}

/// A run that was asked what it does is still started again after a failure.
TEST(Hangs, AReportDoesNotEndRestarts) {
  const TemporaryFolder folder;
  const RunningLaunch launch(
      joined({"--max-restarts", "1"}, training_on("2", {"--hang-report-dir", folder / "reports"})));
  ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
  ::kill(launch.pid(), SIGUSR2);
  ASSERT_TRUE(launch.wait_for("wrote its calls and stacks to ", 2)) << launch.output();
  ::kill(launch.ranks().at(1), SIGKILL);
  EXPECT_TRUE(launch.wait_for("megatron launch: restart 1 of 1")) << launch.output();
  ::kill(launch.pid(), SIGTERM);
  EXPECT_EQ(launch.wait(), 143) << launch.output();
}

/// Without a folder each rank prints one line.
TEST(Hangs, OneRankAnswersASignalToo) {
  const RunningLaunch launch(training_on("1", {}));
  ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
  ::kill(launch.ranks().at(0), SIGUSR2);
  EXPECT_TRUE(launch.wait_for("rank 0 is running, in ")) << launch.output();
  ::kill(launch.pid(), SIGTERM);
  EXPECT_EQ(launch.wait(), 143) << launch.output();
}

/// A rank that died is in the report with its last calls.
TEST(Hangs, ADeadRankIsReported) {
  const TemporaryFolder folder;
  const std::string reports = folder / "reports";
  const RunningLaunch launch(training_on("2", {"--hang-report-dir", reports}));
  ASSERT_TRUE(launch.wait_for(" iteration ", 3)) << launch.output();
  ::kill(launch.ranks().at(1), SIGKILL);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL) << launch.output();
  const std::string report = output_of("hang-report " + reports);
  EXPECT_THAT(report, ContainsRegex("\n     1 .* dead .* (in|after) [a-z_]+ '"));
  EXPECT_THAT(report, HasSubstr("\nrank 1 died; the others ended because of that.\n"));
}

}  // namespace
}  // namespace megatron
