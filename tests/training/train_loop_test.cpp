
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "megatron/base/files.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/resilience/non_finite.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using small_run::run;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class TrainLoopTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_ / "run";
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST_F(TrainLoopTest, LossFallsAndLinesAreMegatrons) {
  const auto outcome =
      run({"--train-iters", "30", "--hidden-dropout", "0", "--attention-dropout", "0"});
  EXPECT_EQ(outcome.code, 0);
  const std::string losses = outcome.log.substr(outcome.log.find("lm loss: "));
  EXPECT_NEAR(std::stod(losses.substr(9)), std::log(64), 0.2);
  EXPECT_LT(std::stod(outcome.log.substr(outcome.log.rfind("lm loss: ") + 9)), 3.5);
  EXPECT_THAT(outcome.log,
              ContainsRegex(" \\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\\] iteration        1/      "
                            "30 \\| consumed samples:            4 \\| elapsed time per "
                            "iteration \\(ms\\): [0-9.]+ \\| learning rate: 5.000000E-03 \\| "
                            "global batch size:     4 \\| lm loss: [0-9.]+E\\+00 \\| loss "
                            "scale: 1.0 \\| grad norm: [0-9.]+ \\| number of skipped iterations:   "
                            "0 \\| number of nan iterations:   0 \\| tokens per "
                            "second: [0-9]+ \\|\n"));
  EXPECT_EQ(count(outcome.log, "validation loss at iteration"), 15u + 2u);
  EXPECT_THAT(outcome.log, HasSubstr("iteration 30 on validation set | lm loss value: "));
  EXPECT_THAT(outcome.log, HasSubstr("iteration 30 on test set | lm loss value: "));
  EXPECT_THAT(outcome.log, HasSubstr("[before the start of training step] datetime: "));
  EXPECT_THAT(outcome.log, HasSubstr("[after training is done] datetime: "));
}

/// Returns the loss of the validation line of `iteration`, as it is printed.
std::string validation_loss(const std::string& log, int iteration) {
  const std::string start =
      " validation loss at iteration " + std::to_string(iteration) + " | lm loss value: ";
  const std::size_t at = log.find(start);
  return at == std::string::npos ? "none" : log.substr(at + start.size(), 12);
}

/// With a learning rate of 0 the evaluations at iterations 0 and 2 have the same weights, and they
/// take the same samples.
TEST_F(TrainLoopTest, EvaluatesBeforeTheFirstIteration) {
  const auto fixed = run({"--eval-on-start", "--lr", "0", "--train-iters", "4"});
  EXPECT_NEAR(std::stod(validation_loss(fixed.log, 0)), std::log(64), 0.2);
  EXPECT_EQ(validation_loss(fixed.log, 0), validation_loss(fixed.log, 2));
  EXPECT_NE(validation_loss(fixed.log, 2), validation_loss(fixed.log, 4));

  const auto with = run({"--eval-on-start"}), without = run({});
  EXPECT_EQ(validation_loss(without.log, 0), "none");
  for (const int iteration : {2, 4})
    EXPECT_EQ(validation_loss(with.log, iteration), validation_loss(without.log, iteration));
}

TEST_F(TrainLoopTest, LineComesAfterTheFirstIterationAndAtIntervals) {
  const auto outcome = run({"--log-interval", "3"});
  for (const char* shown : {"iteration        1/", "iteration        3/", "iteration        6/"})
    EXPECT_THAT(outcome.log, HasSubstr(shown));
  EXPECT_EQ(count(outcome.log, "consumed samples"), 3u);
}

TEST_F(TrainLoopTest, SampleBasedRunCountsIterations) {
  const auto outcome = run({"--train-samples", "14", "--train-iters", "0", "--lr-warmup-iters", "0",
                            "--lr-warmup-samples", "4"});
  EXPECT_EQ(outcome.trainer.state.progress.iteration, 3);
  EXPECT_THAT(outcome.log, HasSubstr("setting training iterations to 3"));
}

TEST_F(TrainLoopTest, SkippedIterationsPassOverSamplesWithoutUpdate) {
  const auto outcome = run({"--iterations-to-skip", "2", "3"});
  EXPECT_EQ(outcome.trainer.state.progress.skipped_train_samples, 8);
  EXPECT_EQ(outcome.trainer.state.progress.consumed_train_samples, 32);
  EXPECT_EQ(outcome.trainer.state.optimizer->num_steps(), 6);
  EXPECT_EQ(outcome.trainer.state.scheduler.num_steps(), 24);
  EXPECT_THAT(outcome.log, HasSubstr("| skipped samples:            8 |"));
}

TEST_F(TrainLoopTest, DivergenceStopsWithoutTheLastUpdate) {
  const std::vector<std::string> flags{
      "--lr", "1e30", "--lr-warmup-iters", "0", "--clip-grad", "0", "--optimizer", "sgd", "--save"};
  std::vector<std::string> at_once = flags, again = flags;
  at_once.insert(at_once.end(), {root_ / "at_once", "--rerun-mode", "disabled"});
  EXPECT_THROW(run(at_once), NonFiniteError);
  again.push_back(root_ / "again");
  const auto outcome = run(again);
  EXPECT_EQ(outcome.code, 16);
  EXPECT_EQ(outcome.trainer.state.progress.iteration, 1);
}

TEST_F(TrainLoopTest, WithoutTheCheckNonFiniteUpdatesAreSkippedAndCounted) {
  const auto outcome = run({"--lr", "1e30", "--lr-warmup-iters", "0", "--clip-grad", "0",
                            "--optimizer", "sgd", "--no-check-for-nan-in-loss-and-grad"});
  EXPECT_EQ(outcome.trainer.state.progress.iteration, 8);
  EXPECT_LT(outcome.trainer.state.scheduler.num_steps(), 32);
  EXPECT_THAT(outcome.log,
              HasSubstr("number of skipped iterations:   1 | number of nan iterations:   1"));
}

TEST_F(TrainLoopTest, SaveIntervalAndFinalSave) {
  run({"--save", root_.string(), "--save-interval", "3"});
  for (const char* folder : {"iter_0000003", "iter_0000006", "iter_0000008"})
    EXPECT_TRUE(fs::exists(root_ / folder)) << folder;
  EXPECT_EQ(read_file(root_ / "latest_checkpointed_iteration.txt"), "8");
}

TEST_F(TrainLoopTest, MetricsHaveALineForEachStepAndEvaluation) {
  run({"--save", root_.string(), "--train-iters", "4", "--log-params-norm"});
  std::istringstream lines(read_file(root_ / "metrics.jsonl"));
  std::string line;
  int steps = 0, evaluations = 0;
  while (std::getline(lines, line)) {
    const Json object = Json::parse(line);
    if (object.contains("run")) {
      EXPECT_EQ(object.at("iteration"), 0);
      continue;
    }
    object.contains("split") ? ++evaluations : ++steps;
    EXPECT_TRUE(object.at("lm loss").is_number());
    EXPECT_EQ(object.contains("params_norm"), !object.contains("split"));
  }
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(evaluations, 4);
}

TEST_F(TrainLoopTest, SigtermFinishesTheIterationSavesAndExits143) {
  std::ostringstream out;
  Trainer trainer =
      set_up(read_run(small_run::flags(
                 {"--train-iters", "1000000", "--lr-warmup-iters", "0", "--save", root_.string()})),
             out);
  std::thread killer([&] {
    while (!fs::exists(root_ / "metrics.jsonl") || fs::file_size(root_ / "metrics.jsonl") == 0)
      std::this_thread::yield();
    kill(getpid(), SIGTERM);
  });
  EXPECT_EQ(train(trainer, out), 143);
  killer.join();
  EXPECT_THAT(out.str(), HasSubstr("[exiting program after receiving SIGTERM.] datetime: "));
  EXPECT_EQ(read_file(root_ / "latest_checkpointed_iteration.txt"),
            std::to_string(trainer.state.progress.iteration));
}

TEST_F(TrainLoopTest, ExitDurationStopsAfterOneIteration) {
  const auto outcome = run({"--exit-duration-in-mins", "1e-9", "--save", root_.string()});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.trainer.state.progress.iteration, 1);
  EXPECT_TRUE(fs::exists(root_ / "iter_0000001"));
  EXPECT_THAT(outcome.log, HasSubstr("exiting program after 0.0"));
}

TEST_F(TrainLoopTest, NoEvaluationWithoutAnInterval) {
  std::vector<std::string> flags = small_run::flags({});
  const auto at = std::find(flags.begin(), flags.end(), "--eval-interval");
  flags.erase(at, at + 2);
  std::ostringstream out;
  Trainer trainer = set_up(read_run(flags), out);
  train(trainer, out);
  EXPECT_THAT(out.str(), Not(HasSubstr("validation loss")));
}

/// Returns the gradients of the first step, by parameter.
std::map<std::string, at::Tensor> first_gradients(const std::vector<std::string>& more) {
  std::vector<std::string> flags{"--train-iters", "1", "--lr-warmup-iters", "0",
                                 "--clip-grad",   "0"};
  flags.insert(flags.end(), more.begin(), more.end());
  const auto outcome = run(flags);
  std::map<std::string, at::Tensor> gradients;
  for (const Parameter* parameter : outcome.trainer.state.weights->parameters())
    gradients[parameter->name()] = parameter->grad().clone();
  return gradients;
}

/// Dropout depends on sample coordinates, so splitting the batch differently changes only the order
/// of summation: 1e-6 of the largest gradient.
TEST_F(TrainLoopTest, AccumulationDoesNotDependOnTheMicrobatchSize) {
  const auto one = first_gradients({"--micro-batch-size", "4"});
  for (const char* size : {"1", "2"}) {
    for (const auto& [name, gradient] : first_gradients({"--micro-batch-size", size})) {
      const at::Tensor expected = one.at(name);
      EXPECT_LT((gradient - expected).abs().max().item<double>(),
                1e-6 + 1e-5 * expected.abs().max().item<double>())
          << name;
    }
  }
}

TEST_F(TrainLoopTest, PerTokenLossEqualsTheMeanWhenAllTokensCount) {
  const auto mean = first_gradients({}),
             per_token = first_gradients({"--calculate-per-token-loss"});
  for (const auto& [name, gradient] : per_token)
    EXPECT_TRUE(gradient.allclose(mean.at(name), 1e-5, 1e-7)) << name;
}

}  // namespace
}  // namespace megatron
