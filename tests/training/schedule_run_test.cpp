// Checks runs whose batch size changes, and runs that evaluate on several sets or only evaluate. A
// run that is stopped anywhere and resumed equals an uninterrupted one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/training/saving/resume_differences.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class ScheduleRunTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  std::string folder(const std::string& name) const { return (root_ / name).string(); }

  /// Writes a data set of `documents` documents of 24 tokens each.
  std::string corpus(const std::string& name, int documents) {
    IndexedDatasetBuilder builder(folder(name), TokenDtype::uint16);
    for (int document = 0; document < documents; ++document) {
      std::vector<std::int32_t> tokens;
      for (int i = 0; i < 24; ++i) tokens.push_back((document * 7 + i * 3) % 60);
      builder.add_document(tokens, std::vector<std::int32_t>{24});
    }
    builder.finalize();
    return folder(name);
  }
};

Words joined(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// A small run on files: `data` replaces the mock data.
small_run::Outcome run_on(const Words& data, const Words& more) {
  Words flags = joined(small_run::flags(data), more);
  flags.erase(std::find(flags.begin(), flags.end(), "--mock-data"));
  std::ostringstream out;
  Trainer trainer = set_up(read_run(flags), out);
  const int code = train(trainer, out);
  return {.code = code, .log = out.str(), .trainer = std::move(trainer)};
}

/// Returns the losses of the steps by iteration, from metrics.jsonl.
std::map<std::int64_t, double> losses(const std::string& folder) {
  std::map<std::int64_t, double> found;
  std::istringstream lines(read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json object = Json::parse(line);
    if (!object.contains("split") && !object.contains("run"))
      found[object.at("iteration")] = object.at("lm loss");
  }
  return found;
}

void expect_resume_is_exact(const std::string& corpus, const Words& flags,
                            const std::string& folder, std::int64_t iterations) {
  const Words data{"--data-path", corpus, "--split", "80,10,10"};
  auto whole = run_on(data, joined(flags, {"--save", folder + "/whole"}));
  ASSERT_EQ(whole.trainer.state.progress.iteration, iterations);
  const auto expected = losses(folder + "/whole");
  for (std::int64_t stop = 1; stop < iterations; ++stop) {
    const std::string parts = folder + "/stop" + std::to_string(stop);
    run_on(data, joined(flags, {"--save", parts, "--exit-interval", std::to_string(stop)}));
    auto resumed = run_on(data, joined(flags, {"--save", parts, "--load", parts, "--ckpt-step",
                                               std::to_string(stop)}));
    EXPECT_EQ(resumed.trainer.state.progress, whole.trainer.state.progress) << stop;
    EXPECT_EQ(losses(parts), expected) << stop;
    EXPECT_TRUE(resumed.trainer.state.weights->buckets()[0].value.equal(
        whole.trainer.state.weights->buckets()[0].value))
        << stop;
  }
}

TEST_F(ScheduleRunTest, RampResumesExactlyAtAnyIteration) {
  expect_resume_is_exact(corpus("c", 40),
                         {"--train-iters", "0", "--train-samples", "44", "--lr-warmup-iters", "0",
                          "--lr-warmup-samples", "6", "--global-batch-size", "8",
                          "--rampup-batch-size", "2", "2", "14"},
                         root_.string(), 8);
}

TEST_F(ScheduleRunTest, StepScheduleResumesExactlyAtAnyIteration) {
  expect_resume_is_exact(
      corpus("c", 40),
      {"--train-iters", "6", "--global-batch-size", "0", "--step-batch-size-schedule",
       "0:2 64:4 192:8", "--iterations-to-skip", "3"},
      root_.string(), 6);
}

TEST_F(ScheduleRunTest, RampSavesBeforeEachChangeAndCountsItsSamples) {
  const auto outcome =
      small_run::run({"--train-iters", "0", "--train-samples", "20", "--lr-warmup-iters", "0",
                      "--global-batch-size", "6", "--rampup-batch-size", "2", "2", "6", "--save",
                      folder("a"), "--log-interval", "1"});
  // Batch sizes 2, 2, 4 (3 samples for each increment), then 6 and 6.
  EXPECT_THAT(committed_iterations(folder("a")), ElementsAre(2, 3, 5));
  EXPECT_EQ(outcome.trainer.state.progress.consumed_train_samples, 20);
  EXPECT_EQ(outcome.trainer.state.scheduler.num_steps(), 20);
  EXPECT_THAT(outcome.log, HasSubstr("batch size changes from 2 to 4 after 4 samples\n"));
  EXPECT_THAT(outcome.log, HasSubstr("global batch size:     4 |"));
  EXPECT_EQ(outcome.trainer.state.progress.floating_point_operations,
            20 * outcome.trainer.plan.flops_per_sample.causal);
}

TEST_F(ScheduleRunTest, DecreasedBatchesCountWhatTheyLeaveOut) {
  const auto outcome = small_run::run(
      {"--global-batch-size", "5", "--decrease-batch-size-if-needed", "--train-iters", "4"});
  EXPECT_EQ(outcome.trainer.state.progress.consumed_train_samples, 16);
  EXPECT_EQ(outcome.trainer.state.progress.skipped_train_samples, 4);
  EXPECT_EQ(outcome.trainer.state.scheduler.num_steps(), 16);
  EXPECT_THAT(outcome.log, HasSubstr("| skipped samples:            4 |"));
}

TEST_F(ScheduleRunTest, IterationsAreConvertedWithTheRamp) {
  const auto outcome =
      small_run::run({"--train-iters", "5", "--lr-warmup-iters", "2", "--global-batch-size", "6",
                      "--rampup-batch-size", "2", "2", "6"});
  EXPECT_EQ(outcome.trainer.state.scheduler.schedule().lr_warmup_steps, 4);
  EXPECT_EQ(outcome.trainer.state.scheduler.schedule().lr_decay_steps, 20);
  EXPECT_EQ(outcome.trainer.state.scheduler.lr(), 0);
}

TEST_F(ScheduleRunTest, BatchThatCannotBeCutIsRefusedBeforeTraining) {
  small_run::run({"--save", folder("a"), "--exit-interval", "2"});
  try {
    small_run::run({"--load", folder("a"), "--global-batch-size", "0", "--step-batch-size-schedule",
                    "0:4 160:9", "--override-opt-param-scheduler"});
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("a batch of 9 samples, due from here on (8 samples are consumed)"));
  }
}

TEST_F(ScheduleRunTest, SeveralValidationSetsHaveALossEach) {
  const Words data{
      "--train-data-path", corpus("t", 40),    "--valid-data-path", corpus("v", 9),
      corpus("w", 5),      "--test-data-path", corpus("x", 20),     "--multiple-validation-sets"};
  const auto run = [&](const Words& more) { return run_on(data, more); };
  const auto whole =
      run({"--full-validation", "--validation-set-names", "near", "far", "--save", folder("a")});
  // 9 · 24 tokens hold 13 samples of 16 tokens plus the next token, 12 in pairs. 5 · 24 tokens hold
  // 7 samples, 6 in pairs.
  EXPECT_THAT(whole.log, HasSubstr("    validation: None\n"));
  EXPECT_THAT(whole.log, HasSubstr("validation-near set takes 12 of its 13 samples"));
  EXPECT_THAT(whole.log, HasSubstr(" validation-near loss at iteration 2 | lm loss value: "));
  EXPECT_THAT(whole.log,
              HasSubstr(" validation-far loss at iteration 8 on validation set | lm loss value: "));
  EXPECT_THAT(whole.log, HasSubstr(" validation loss at iteration 8 on test set | "));
  EXPECT_EQ(whole.trainer.state.progress.consumed_valid_samples, 5 * 18);
  EXPECT_THAT(read_file(folder("a") + "/metrics.jsonl"), HasSubstr("\"split\":\"validation-far\""));

  const auto counted = run({"--eval-iters", "2", "--eval-global-batch-size", "2",
                            "--eval-micro-batch-size", "1", "--start-eval-at-iter", "5"});
  EXPECT_THAT(counted.log, HasSubstr(" validation-1 loss at iteration 6 | "));
  EXPECT_THAT(counted.log, Not(HasSubstr("loss at iteration 4 |")));
  EXPECT_EQ(counted.trainer.state.progress.consumed_valid_samples, 3 * 2 * 4);

  EXPECT_THROW(run({"--validation-set-names", "one"}), UserError);
}

/// Full validation is the mean over every sample: evaluating the same samples in different
/// microbatches gives the same value.
TEST_F(ScheduleRunTest, FullValidationIsTheMeanOfTheSet) {
  const Words data{"--train-data-path", corpus("t", 40),    "--valid-data-path",
                   corpus("v", 9),      "--test-data-path", corpus("x", 20)};
  const auto loss = [&](const Words& more) {
    const auto outcome = run_on(data, joined(more, {"--skip-train", "--full-validation"}));
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.trainer.state.optimizer, nullptr);
    EXPECT_EQ(outcome.trainer.data.train, nullptr);
    EXPECT_THAT(outcome.log, HasSubstr("skipping training (--skip-train is on) ..."));
    return std::stod(outcome.log.substr(outcome.log.find("lm loss value: ") + 15));
  };
  EXPECT_NEAR(loss({"--eval-global-batch-size", "1", "--eval-micro-batch-size", "1"}),
              loss({"--eval-global-batch-size", "13", "--eval-micro-batch-size", "13"}), 2e-6);
}

TEST_F(ScheduleRunTest, EvaluationAloneReadsACheckpointAndChangesNothing) {
  const auto trained = small_run::run({"--save", folder("a"), "--train-iters", "4"});
  const auto evaluated = small_run::run({"--load", folder("a"), "--skip-train"});
  const auto line = [](const std::string& log) {
    return log.substr(log.rfind("iteration 4 on test set"));
  };
  EXPECT_EQ(line(evaluated.log), line(trained.log));
  EXPECT_THAT(committed_iterations(folder("a")), ElementsAre(4));
}

TEST_F(ScheduleRunTest, FinetuneStartsItsRampAnew) {
  small_run::run({"--save", folder("a"), "--train-iters", "4"});
  const auto outcome = small_run::run({"--load", folder("a"), "--finetune", "--global-batch-size",
                                       "8", "--rampup-batch-size", "2", "2", "8"});
  EXPECT_THAT(outcome.log,
              HasSubstr("iteration        1/       8 | consumed samples:            2 |"));
  EXPECT_EQ(outcome.trainer.state.progress.iteration, 8);
}

TEST_F(ScheduleRunTest, DifferencesSayWhatFollows) {
  small_run::run({"--save", folder("a"), "--exit-interval", "4"});
  const std::string log = small_run::run({"--load", folder("a"), "--seed", "7", "--lr", "2e-2",
                                          "--override-opt-param-scheduler", "--log-interval", "2",
                                          "--clip-grad", "0.5"})
                              .log;
  EXPECT_THAT(log, HasSubstr(" flags that differ from the checkpoint's:\n"));
  EXPECT_THAT(log, HasSubstr("  ! --seed: 1234 in the checkpoint, 7 now: the order of the data "
                             "and dropout differ from now on\n"));
  EXPECT_THAT(log, HasSubstr("    --lr: 0.01 in the checkpoint, 0.02 now: 0.02 holds, by "
                             "--override-opt-param-scheduler\n"));
  EXPECT_THAT(log,
              HasSubstr("    --clip-grad: 1 in the checkpoint, 0.5 now: applies from now on\n"));
  EXPECT_THAT(log, HasSubstr("    --log-interval: 1 in the checkpoint, 2 now\n"));
}

TEST(ResumeDifferences, EachWayOutOfAScheduleConflictIsNamed) {
  const Json saved{{"lr", "0.01"}};
  Settings settings;
  settings.scheduler->lr = 0.5;
  EXPECT_THAT(settings_differences(saved, settings, 4),
              HasSubstr("add --override-opt-param-scheduler for 0.5, or "
                        "--use-checkpoint-opt-param-scheduler for 0.01"));
  settings.scheduler->use_checkpoint_opt_param_scheduler = true;
  EXPECT_THAT(settings_differences(saved, settings, 4),
              HasSubstr("0.01 holds, by --use-checkpoint-opt-param-scheduler"));
  settings.checkpoint->load_optim = false;
  EXPECT_THAT(settings_differences(saved, settings, 4), HasSubstr("0.5 holds, by --no-load-optim"));
  settings.checkpoint->load_optim = true;
  settings.scheduler->use_checkpoint_opt_param_scheduler = false;
  settings.scheduler->override_opt_param_scheduler = true;
  EXPECT_THAT(settings_differences(saved, settings, 4),
              HasSubstr("    --lr: 0.01 in the checkpoint, 0.5 now: 0.5 holds, by "
                        "--override-opt-param-scheduler"));
}

/// Settings as the manifest stores them.
Json saved_settings(const std::map<std::string, std::string>& values) { return Json(values); }

TEST(ResumeDifferences, OtherTokensAndSamplesAreNamed) {
  const Json saved =
      saved_settings({{"null_tokenizer_eod_id", "7"}, {"document_packing_strategy", "bfd_split"}});
  Settings settings;
  settings.tokenizer->null_tokenizer_eod_id = 8;
  const std::string text = settings_differences(saved, settings, 4);
  EXPECT_THAT(text, HasSubstr("  ! --null-tokenizer-eod-id: 7 in the checkpoint, 8 now: documents "
                              "end at another id\n"));
  EXPECT_THAT(text, HasSubstr("  ! --document-packing-strategy: bfd_split in the checkpoint, "
                              "wrapped now: the same documents become different samples\n"));
}

TEST(ResumeDifferences, APhaseOfTheDataMayChangeItsDataAndLength) {
  const Json saved = saved_settings({{"seq_length", "16"},
                                     {"data_path", "a"},
                                     {"split", "1,0,0"},
                                     {"train_iters", "8"},
                                     {"phase_transition_iterations", "4"}});
  Settings settings;
  settings.training->seq_length = 64;
  settings.training->train_iters = 8;
  settings.training->phase_transition_iterations = {4};
  settings.data->data_path = {"b"};
  settings.data->split = "9,1,0";
  const std::string border = settings_differences(saved, settings, 4);
  EXPECT_THAT(border,
              HasSubstr("    --seq-length: 16 in the checkpoint, 64 now: holds from here on, "
                        "where a phase of the data begins\n"));
  EXPECT_THAT(border, HasSubstr("    --data-path: a in the checkpoint, b now: holds from here on"));
  EXPECT_THAT(border, HasSubstr("  ! --split"));
  const std::string within = settings_differences(saved, settings, 3);
  EXPECT_THAT(within, HasSubstr("  ! --seq-length"));
  EXPECT_THAT(within, HasSubstr("  ! --data-path"));
}

TEST(ResumeDifferences, OnlyTheCurrentPhaseMustKeepItsBounds) {
  const Json saved =
      saved_settings({{"train_iters", "20"}, {"phase_transition_iterations", "4 8"}});
  Settings settings;
  settings.training->train_iters = 20;
  settings.training->phase_transition_iterations = {4, 12};
  EXPECT_THAT(settings_differences(saved, settings, 2),
              HasSubstr("    --phase-transition-iterations: 4 8 in the checkpoint, 4 12 now\n"));
  EXPECT_THAT(settings_differences(saved, settings, 4),
              HasSubstr("    --phase-transition-iterations: 4 8 in the checkpoint, 4 12 now\n"))
      << "a phase begins, of which no sample is consumed";
  EXPECT_THAT(settings_differences(saved, settings, 6),
              HasSubstr("  ! --phase-transition-iterations: 4 8 in the checkpoint, 4 12 now: the "
                        "consumed samples were different ones"));
}

/// Returns the tokens of the samples that the run still trains on.
std::vector<at::Tensor> remaining_tokens(small_run::Outcome& outcome, std::int64_t microbatches) {
  std::vector<at::Tensor> tokens;
  for (std::int64_t i = 0; i < microbatches; ++i)
    tokens.push_back(outcome.trainer.data.train->next().at("tokens").clone());
  return tokens;
}

/// Sets up a run on files without training.
small_run::Outcome set_up_on(const Words& data, const Words& more) {
  Words flags = joined(small_run::flags(data), more);
  flags.erase(std::find(flags.begin(), flags.end(), "--mock-data"));
  std::ostringstream out;
  small_run::Outcome outcome{.code = 0, .log = {}, .trainer = set_up(read_run(flags), out)};
  outcome.log = out.str();
  return outcome;
}

/// The second phase reads what a run of its own reads that has its length and data: from the first
/// sample, in the order that its own number of samples gives. A run that stops within the phase
/// continues in the middle of it.
TEST_F(ScheduleRunTest, EachPhaseReadsItsOwnDataSet) {
  const Words rope{"--position-embedding-type", "rope"};
  const Words first = joined({"--data-path", corpus("a", 40), "--split", "1,0,0"}, rope);
  const Words second =
      joined({"--data-path", corpus("b", 9), "--split", "1,0,0", "--seq-length", "32"}, rope);
  const Words phases{
      "--phase-transition-iterations", "3", "--save", folder("p"), "--load", folder("p")};
  auto begun = run_on(first, phases);
  EXPECT_EQ(begun.code, 0);
  EXPECT_EQ(begun.trainer.state.progress.iteration, 3);
  EXPECT_THAT(begun.log, HasSubstr("> phase 1 of 2 of the data: iterations 1 to 3, 12 samples"));
  EXPECT_THAT(begun.log, HasSubstr("[exiting program at iteration 3, where a phase of the data "
                                   "ends: start again with the flags of the next phase]"));
  EXPECT_THAT(committed_iterations(folder("p")), ElementsAre(3));

  auto continued = set_up_on(second, phases);
  EXPECT_THAT(continued.log,
              HasSubstr("> phase 2 of 2 of the data: iterations 4 to 8, 20 samples"));
  EXPECT_THAT(continued.log, HasSubstr("    train:      20\n"));
  EXPECT_THAT(continued.log, Not(HasSubstr("  ! --data-path")));
  EXPECT_EQ(continued.trainer.state.progress.consumed_train_samples, 12);  // dropout's ordinals
  auto alone = set_up_on(second, {"--train-iters", "5"});
  const auto expected = remaining_tokens(alone, 10);
  const auto tokens = remaining_tokens(continued, 10);
  EXPECT_EQ(tokens[0].size(1), 32);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(tokens[i].equal(expected[i])) << i;

  continued.trainer.folders = {};  // releases the locks
  run_on(second, joined(phases, {"--exit-interval", "5"}));
  auto resumed = set_up_on(second, phases);
  const auto rest = remaining_tokens(resumed, 6);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_TRUE(rest[i].equal(expected[i + 4])) << i;
}

TEST_F(ScheduleRunTest, PhasesKeepTheBatchSizeAndWarnWithoutSaving) {
  const auto outcome =
      small_run::run({"--phase-transition-iterations", "2", "--save", folder("a")});
  EXPECT_THAT(outcome.log, Not(HasSubstr("saves nothing")));
  EXPECT_THAT(small_run::run({"--phase-transition-iterations", "2"}).log,
              HasSubstr("WARNING: the run stops at iteration 2, where a phase of the data ends "
                        "(--phase-transition-iterations), and saves nothing: add --save DIR"));
  try {
    small_run::run(
        {"--phase-transition-iterations", "2", "--load", folder("a"), "--global-batch-size", "8"});
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the checkpoint was saved with 4"));
  }
}

}  // namespace
}  // namespace megatron
