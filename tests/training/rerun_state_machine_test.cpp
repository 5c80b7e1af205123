// Compares states, exit codes and messages with those of Megatron Core's machine for the same
// results (fixtures/reruns.jsonl).
#include "megatron/training/resilience/reruns/rerun_state_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/exit_codes.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

const ResultCheck kNan{.message = "found NaN", .rejects = ResultCheck::Rejects::nan};
const ResultCheck kSpiky{.message = "Spiky loss",
                         .rejects = ResultCheck::Rejects::large,
                         .context = "loss",
                         .fatal = false};

double number(const Json& json) {
  return json.is_string() ? std::strtod(json.get<std::string>().c_str(), nullptr)
                          : json.get<double>();
}

/// Runs a step whose n-th run returns results[n]; further runs return the last result.
RerunStateMachine::Verdict run_step(RerunStateMachine& machine, std::int64_t iteration,
                                    const std::vector<std::vector<double>>& runs) {
  machine.begin(iteration);
  for (std::size_t run = 0; machine.should_run(); ++run) {
    for (const double result : runs.at(std::min(run, runs.size() - 1))) {
      machine.validate(result, kNan);
      machine.validate(result, kSpiky);
    }
  }
  return machine.verdict();
}

class FixtureTest : public testing::Test {
 protected:
  RerunStateMachine machine(const std::string& node, const std::string& mode = "validate_results") {
    return RerunStateMachine({.mode = rerun_mode(mode),
                              .place = {.node = node, .device = 0},
                              .log = [this](const std::string& line) { log_.push_back(line); }});
  }
  std::vector<std::string> log_;
};

TEST_F(FixtureTest, EveryScenarioEndsAsInMegatronCore) {
  std::ifstream file(std::string(MEGATRON_SOURCE_DIR) + "/tests/training/fixtures/reruns.jsonl");
  ASSERT_TRUE(file);
  int scenarios = 0;
  for (std::string line; std::getline(file, line); ++scenarios) {
    const Json scenario = Json::parse(line);
    SCOPED_TRACE(scenario["name"].get<std::string>());
    log_.clear();
    std::optional<RerunStateMachine> current;
    std::string node;
    for (const Json& step : scenario["steps"]) {
      if (!current || step["node"] != node) {
        const Json state = current ? *current->to_json() : Json(nullptr);
        node = step["node"];
        current.emplace(machine(node, scenario["mode"]));
        current->restore(state, "fixture");
      }
      std::vector<std::vector<double>> runs;
      for (const Json& run : step["runs"]) {
        auto& results = runs.emplace_back();
        for (const Json& result : run) results.push_back(number(result));
      }
      const auto verdict = run_step(*current, step["iteration"], runs);
      EXPECT_EQ(verdict.save, step["save"].get<bool>());
      EXPECT_EQ(verdict.exit, step["exit"].get<bool>());
      EXPECT_EQ(verdict.exit_code, step["exit_code"].get<int>());
    }
    EXPECT_EQ(log_, scenario["log"].get<std::vector<std::string>>());
  }
  EXPECT_GE(scenarios, 6);
}

TEST(RerunStateMachine, OnACpuTheRestartedRunIsTheSecondOpinion) {
  std::vector<std::string> log;
  const auto make = [&] {
    return RerunStateMachine({.place = {.node = "a", .device = 0, .has_alternative = false},
                              .log = [&](const std::string& line) { log.push_back(line); }});
  };
  RerunStateMachine first = make();
  run_step(first, 1, {{1.0}});
  EXPECT_EQ(run_step(first, 2, {{NAN}}).exit_code, kExitResumeToDisambiguate);
  RerunStateMachine second = make();
  second.restore(*first.to_json(), "test");
  const auto verdict = run_step(second, 2, {{NAN}});
  EXPECT_EQ(verdict.exit_code, kExitFailedOnResultValidation);
  EXPECT_FALSE(verdict.save);
  EXPECT_THAT(log, testing::Contains(testing::HasSubstr(
                       "Correct result (but possible Application error) (found NaN)")));
}

/// A defective rank rejects what it alone computed wrongly. The others run the step again with it.
TEST(RerunStateMachine, ARankFollowsTheVerdictOfAnother) {
  const auto code_of = [](const std::vector<bool>& requests_of_the_other) {
    std::size_t num_asked = 0;
    bool is_second_step = false;
    RerunStateMachine machine({.place = {.node = "a"},
                               .log = [](const std::string&) {},
                               .any_rank =
                                   [&](bool flag) {
                                     if (!is_second_step) return flag;
                                     return flag || requests_of_the_other.at(num_asked++);
                                   }});
    run_step(machine, 1, {{1.0}});
    is_second_step = true;
    const int code = run_step(machine, 2, {{1.0}}).exit_code;
    EXPECT_FALSE(machine.has_rejected());
    EXPECT_EQ(num_asked, requests_of_the_other.size());
    return code;
  };
  EXPECT_EQ(code_of({false}), 0);
  EXPECT_EQ(code_of({true, false}), kExitFailedOnResultValidation) << "it is not reproduced";
  EXPECT_EQ(code_of({true, true}), kExitResumeToDisambiguate);
}

/// Every rank contributes to the results, so each must come to the same verdict.
TEST(RerunStateMachine, RanksOnTheSameAndOnOtherGpusAgree) {
  const auto code_of = [](const std::string& gpus_before, const std::string& node,
                          const std::string& gpus) {
    const auto make = [](const std::string& at, const std::string& all) {
      return RerunStateMachine(
          {.place = {.node = at, .gpus = all}, .log = [](const std::string&) {}});
    };
    RerunStateMachine first = make("a", gpus_before);
    run_step(first, 1, {{1.0}});
    run_step(first, 2, {{NAN}});
    RerunStateMachine second = make(node, gpus);
    second.restore(*first.to_json(), "test");
    return run_step(second, 2, {{NAN}}).exit_code;
  };
  for (const char* node : {"a", "b"}) {
    EXPECT_EQ(code_of("1", node, "1"), kExitResumeToDisambiguate) << node;
    EXPECT_EQ(code_of("1", node, "2"), kExitFailedOnResultValidation) << node;
  }
}

TEST(RerunStateMachine, ARerunWhoseIterationIsPassedOverIsGivenUp) {
  std::vector<std::string> log;
  const auto make = [&] {
    return RerunStateMachine(
        {.place = {.node = "a"}, .log = [&](const std::string& line) { log.push_back(line); }});
  };
  RerunStateMachine first = make();
  run_step(first, 1, {{1.0}});
  run_step(first, 2, {{NAN}});
  RerunStateMachine second = make();
  second.restore(*first.to_json(), "test");
  EXPECT_FALSE(run_step(second, 3, {{1.0}}).exit);
  EXPECT_THAT(log, testing::Contains(testing::HasSubstr("iteration 2, was passed over")));
}

TEST(RerunStateMachine, DamagedStateIsAUserError) {
  RerunStateMachine machine({.log = [](const std::string&) {}});
  for (const char* text :
       {"{}", "[]", "3", R"({"iteration": "x"})",
        R"({"iteration": 1, "failed_message": "m", "failed_sequence": 1, "initial_result": "1",
        "suspicious_node": "n", "suspicious_device": 0, "injected_error": "no_such",
        "largest": {}})"}) {
    EXPECT_THROW(machine.restore(Json::parse(text), "state"), UserError) << text;
  }
}

TEST(RerunStateMachine, InjectedErrorsWalkThroughTheStates) {
  std::string log;
  const auto run = [&log](RerunDiagnostic type, std::vector<int>& codes) {
    log.clear();
    const auto options = [&](std::int64_t rate) {
      return RerunStateMachine::Options{.error_injection_rate = rate,
                                        .error_injection_type = type,
                                        .place = {.node = "a", .has_alternative = false},
                                        .log = [&](const std::string& line) { log += line; }};
    };
    RerunStateMachine first(options(1));
    run_step(first, 1, {{1.0}});
    codes.push_back(run_step(first, 2, {{1.0}}).exit_code);
    const Json state = *first.to_json();
    if (state.is_null()) return;
    RerunStateMachine second(options(1));
    second.restore(state, "test");
    codes.push_back(run_step(second, 2, {{1.0}}).exit_code);
  };
  std::vector<int> transient, persistent, correct;
  run(RerunDiagnostic::transient_error, transient);
  EXPECT_THAT(log, testing::HasSubstr("Possible transient error!!"));
  run(RerunDiagnostic::persistent_error, persistent);
  EXPECT_THAT(log, testing::HasSubstr("Possible persistent error!!"));
  run(RerunDiagnostic::correct_result, correct);
  EXPECT_THAT(transient, testing::ElementsAre(17));
  EXPECT_THAT(persistent, testing::ElementsAre(16, 17));
  EXPECT_THAT(correct, testing::ElementsAre(16, 17));
}

TEST(TrackerFile, IterationsThatFailedTwiceAreSkipped) {
  const TemporaryFolder folder;
  const auto path = folder / "tracker";
  const TrackerFile tracker(path.string(), {.node = "n1", .device = 0});
  tracker.append(
      {.iteration = 5, .status = RerunStatus::initial_run, .result = NAN, .message = "m"});
  tracker.append({.iteration = 5,
                  .status = RerunStatus::first_rerun_reproducible,
                  .result = NAN,
                  .message = "m"});
  EXPECT_THAT(iterations_to_skip(path.string()).to_skip, testing::IsEmpty());
  tracker.append({.iteration = 5,
                  .status = RerunStatus::second_rerun_reproducible,
                  .result = NAN,
                  .message = "m"});
  tracker.append(
      {.iteration = 7, .status = RerunStatus::rerun_disabled, .result = 1.5, .message = "m"});
  std::ofstream(path, std::ios::app)
      << "not a line of ours\n"
      << "ts=t node=n2 device=1 jobID=N/A rank=1 iteration=7 "
         "status=RerunValidationStatus.RERUN_DISABLED result=1 message='m'\n"
      << "ts=t node=n2 device=1 jobID=N/A rank=1 iteration=7 status=rerun_disabled result=1 "
         "message='m'\n";
  const SkippedIterations found = iterations_to_skip(path.string());
  EXPECT_THAT(found.to_skip, testing::ElementsAre(5));
  EXPECT_THAT(found.to_ignore, testing::ElementsAre(7));
}

TEST(TrackerFile, UnwritablePlaceIsAUserError) {
  EXPECT_THAT(message_of([] { TrackerFile("/no/such/folder/file", {}); }),
              testing::HasSubstr("--result-rejected-tracker-filename /no/such/folder/file: cannot "
                                 "be appended to"));
}

}  // namespace
}  // namespace megatron
