// The faults of a seed, the judgement of a broken run, and runs that are really broken.
// MEGATRON_TEST_FAULTS sets their number (`make test-nightly`: 300); MEGATRON_TEST_SEED reproduces
// the faults of a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "cli/running_launch.h"
#include "cli/shell.h"
#include "cli/tiny_training.h"
#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/cli/chaos_report.h"
#include "megatron/config/chaos_options.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

ChaosPlanOptions plan_options(std::uint64_t seed) {
  return {.seed = seed,
          .num_faults = 6,
          .num_ranks = 4,
          .train_iters = 40,
          .kinds = {FaultKind::kill, FaultKind::stop, FaultKind::slow}};
}

std::string text_of(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults)
    text += std::string(name_of(fault.kind)) + " " + std::to_string(fault.rank) + " " +
            std::to_string(fault.iteration) + " " + std::to_string(fault.step_part) + "\n";
  return text;
}

TEST(ChaosPlan, ASeedGivesTheSameFaults) {
  EXPECT_EQ(text_of(plan_faults(plan_options(7))), text_of(plan_faults(plan_options(7))));
  EXPECT_NE(text_of(plan_faults(plan_options(7))), text_of(plan_faults(plan_options(8))));
}

TEST(ChaosPlan, SpreadsFaultsOverStepsRanksAndKinds) {
  std::set<std::int64_t> iterations, ranks;
  std::set<FaultKind> kinds;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::int64_t last = 0;
    for (const Fault& fault : plan_faults(plan_options(seed))) {
      EXPECT_GT(fault.iteration, last) << "one after the other";
      last = fault.iteration;
      iterations.insert(fault.iteration);
      ranks.insert(fault.rank);
      kinds.insert(fault.kind);
      EXPECT_GE(fault.step_part, 0);
      EXPECT_LT(fault.step_part, 1);
    }
  }
  EXPECT_THAT(iterations, SizeIs(39)) << "each but the last, after which no step follows";
  EXPECT_EQ(*iterations.rbegin(), 39);
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(kinds, SizeIs(3));
}

TEST(ChaosPlan, HasAtMostOneFaultOfEachStep) {
  ChaosPlanOptions options = plan_options(1);
  options.train_iters = 4;
  EXPECT_THAT(plan_faults(options), SizeIs(3));
  options.train_iters = 1;
  EXPECT_THAT(plan_faults(options), IsEmpty());
}

TEST(ChaosPlan, KnowsTheNamesOfItsKinds) {
  for (const char* name : {"kill", "segfault", "stop", "pause", "slow", "full-disk", "drop-link",
                           "corrupt-link", "bit-flip"})
    EXPECT_STREQ(name_of(fault_kind(name)), name);
  EXPECT_TRUE(ends_the_ranks(FaultKind::bit_flip));
  EXPECT_FALSE(ends_the_ranks(FaultKind::drop_link)) << "unless they use the link";
}

TEST(ChaosOptions, ARunHangsLaterThanRanksWaitForAStoppedOne) {
  ChaosOptions options;
  EXPECT_EQ(seconds_until_hung(options, 0.2), 132);
  EXPECT_EQ(seconds_until_hung(options, 5), 420);
  options.timeout_seconds = 301;
  EXPECT_EQ(seconds_until_hung(options, 5), 301);
  options.timeout_seconds = 300;
  EXPECT_THROW(seconds_until_hung(options, 5), UserError);
}

TEST(ChaosRun, ReadsTheLinesOfSteps) {
  const auto step = logged_step(
      " [2026-01-01 12:00:00] iteration       10/     100 | consumed samples:          320 | lm "
      "loss: 4.567890E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   "
      "0 |");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->iteration, 10);
  EXPECT_EQ(step->loss, "4.567890E+00");
  EXPECT_EQ(step->grad_norm, "1.234");
  EXPECT_FALSE(logged_step("megatron launch: restart 1 of 3"));
  EXPECT_FALSE(logged_step("saved iteration 10 to x"));
}

/// A run of three steps, and the same with a fault after the first.
ChaosResult right_result() {
  ChaosResult result{.seed = 1, .num_ranks = 2, .train_iters = 3};
  for (std::int64_t i = 1; i <= 3; ++i)
    result.reference.steps[i] = {{i, std::to_string(i) + ".5", "1.0"}};
  result.broken.steps = result.reference.steps;
  result.broken.steps[1].push_back(result.broken.steps[1][0]);  // computed again
  result.broken.faults = {{.fault = {FaultKind::kill, 1, 1, 0},
                           .has_happened = true,
                           .recovery_s = 2.5,
                           .repeated_steps = 1}};
  return result;
}

TEST(ChaosReport, ARightRunHasNoProblems) {
  const ChaosResult result = right_result();
  EXPECT_THAT(problems_of(result), IsEmpty());
  EXPECT_THAT(chaos_text(result), HasSubstr("  kill             1          1              2.50 s"));
  EXPECT_THAT(chaos_text(result), HasSubstr("right: the run ended, and its 3 losses"));
  EXPECT_EQ(parse_json(chaos_json(result), "json")["right"], true);
}

TEST(ChaosReport, SaysWhatIsWrong) {
  const auto problems_after = [](const std::function<void(ChaosResult&)>& change) {
    ChaosResult result = right_result();
    change(result);
    return problems_of(result);
  };
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.broken.hung = true; }),
              ElementsAre("the run hung and was killed"));
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.broken.code = 2; }),
              ElementsAre("the run ended with exit code 2"));
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.broken.faults[0].recovery_s.reset(); }),
              ElementsAre("no step was finished after the kill of rank 1 after iteration 1"));
  EXPECT_THAT(
      problems_after([](ChaosResult& r) {
        r.broken.faults[0].fault.kind = FaultKind::bit_flip;
        r.broken.faults[0].recovery_s.reset();
        r.broken.faults[0].is_unnoticed = true;
      }),
      ElementsAre("the bit-flip of rank 1 after iteration 1 was not noticed: the ranks were "
                  "not started again"))
      << "although every number is right";
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.broken.faults[0].has_happened = false; }),
              ElementsAre("no fault happened: the run is too short, or its ranks were not found"));
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.broken.steps.erase(2); }),
              ElementsAre("iteration 2 is missing"));
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.broken.steps[1][1].loss = "1.6"; }),
              ElementsAre("the loss of iteration 1 is 1.6, without faults 1.5"))
      << "also where it was computed again";
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.broken.steps[3][0].grad_norm = "2.0"; }),
              ElementsAre("the grad norm of iteration 3 is 2.0, without faults 1.0"));
  EXPECT_THAT(problems_after([](ChaosResult& r) {
                r.broken.steps[2][0] = {2, "9.9", "9.9", true};
                r.broken.steps[2].push_back({2, "2.5", "1.0"});
              }),
              IsEmpty())
      << "a wrong step after a bit flip that was computed again";
  EXPECT_THAT(problems_after([](ChaosResult& r) {
                r.broken.steps[2][0] = {2, "9.9", "9.9", true};
              }),
              ElementsAre("iteration 2 is missing"));
  EXPECT_THAT(problems_after([](ChaosResult& r) { r.checkpoint_difference = "1 of 9 differ"; }),
              ElementsAre("the last checkpoints differ: 1 of 9 differ"));
}

// ---- runs ----

struct Ended {
  int code;
  std::string output;
};

Ended run_chaos_program(const std::string& flags, const Args& training) {
  std::string command =
      kProgram + " chaos " + flags + " -- launch --nproc-per-node 3 --grace-seconds 3 -- pretrain";
  for (const std::string& word : training) command += " " + word;
  const auto [code, text] = shell(command);
  return {code, text};
}

/// A run whose steps take long enough to be interrupted.
Args replicated_training(const std::string& train_iters) {
  return tiny_training({"--num-layers", "4", "--hidden-size", "64", "--seq-length", "64",
                        "--micro-batch-size", "1", "--global-batch-size", "12", "--hidden-dropout",
                        "0.1", "--save-interval", "5", "--train-iters", train_iters});
}
Args broken_training(const std::string& train_iters) {
  return joined(replicated_training(train_iters), {"--use-distributed-optimizer"});
}

/// Breaks runs with `total` faults in all, `each` per run.
void expect_survival(const std::string& kinds, std::uint64_t total, std::uint64_t each,
                     const Args& training) {
  const std::uint64_t seed =
      number_from_environment("MEGATRON_TEST_SEED", std::random_device{}() % 1'000'000);
  for (std::uint64_t i = 0; i * each < total; ++i) {
    const std::string flags = "--json --seed " + std::to_string(seed + i) + " --faults " +
                              std::to_string(each) + " --kinds " + kinds;
    const Ended ended = run_chaos_program(flags, training);
    ASSERT_EQ(ended.code, 0) << "chaos " << flags << "\n" << ended.output;
    const Json result = parse_json(ended.output, "chaos");
    EXPECT_EQ(result["right"], true);
    std::uint64_t num_happened = 0;
    for (const Json& fault : result["faults"]) num_happened += fault["happened"] == true ? 1 : 0;
    EXPECT_GE(num_happened, each / 2) << "the run is too short: " << ended.output;
  }
}

TEST(BrokenRuns, SurviveEveryFault) {
  expect_survival("kill segfault stop pause slow full-disk",
                  number_from_environment("MEGATRON_TEST_FAULTS", 20), 20, broken_training("240"));
}

/// Returns the number of faults of links, and of bit flips.
std::uint64_t num_other_faults() {
  return std::max<std::uint64_t>(5, number_from_environment("MEGATRON_TEST_FAULTS", 20) / 6);
}

TEST(BrokenRuns, SurviveBrokenLinks) {
  expect_survival("drop-link corrupt-link", num_other_faults(), 5,
                  joined(broken_training("60"), {"--cpu-transport", "gloo"}));
}

TEST(BrokenRuns, SurviveBitFlips) {
  expect_survival("bit-flip", num_other_faults(), 5, replicated_training("60"));
}

/// After rank 1 was replaced, its process is the last child of the launcher.
TEST(BrokenRuns, HitTheRankThatTheyReport) {
  const TemporaryFolder folder;
  const Ended ended = run_chaos_program(
      "--json --seed 5 --faults 4 --kinds kill --scratch " + (folder / "scratch").string(),
      joined(broken_training("60"), {"--inprocess-restart"}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  std::vector<std::int64_t> reported, killed;
  const Json result = parse_json(ended.output, "chaos");
  for (const Json& fault : result["faults"])
    if (fault["happened"] == true) reported.push_back(fault["rank"]);
  std::istringstream log(read_file(folder / "scratch" / "with-faults.log"));
  const std::string begin = "megatron launch: rank ";
  for (std::string line; std::getline(log, line);)
    if (line.starts_with(begin) && line.find(" was killed by signal 9") != std::string::npos)
      killed.push_back(std::stoll(line.substr(begin.size())));
  EXPECT_EQ(killed, reported);
  EXPECT_THAT(reported, ElementsAre(2, 1, 1, 2));
}

/// Else the run with faults would find what the one without has saved.
TEST(BrokenRuns, HaveFoldersOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string local = (folder / "local").string();
  const Ended ended =
      run_chaos_program("--json --seed 4 --faults 1 --kinds kill",
                        joined(broken_training("60"),
                               {"--non-persistent-save-interval", "1", "--non-persistent-ckpt-type",
                                "local", "--non-persistent-local-ckpt-dir", local}));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_FALSE(std::filesystem::exists(local));
}

/// A run that does not continue from its checkpoint is not right.
TEST(BrokenRuns, AreFoundWrong) {
  const Ended ended = run_chaos_program("--seed 3 --faults 1 --kinds kill",
                                        joined(broken_training("12"), {"--no-load-optim"}));
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("\nwrong: the "));
}

}  // namespace
}  // namespace megatron
