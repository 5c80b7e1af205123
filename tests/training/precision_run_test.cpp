// Whole runs of a tiny GPT in 16 bits: they learn like the fp32 run, skip steps that overflow, and
// resume exactly.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using Flags = std::vector<std::string>;

Flags operator+(Flags left, const Flags& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// Returns the numbers after `field` in the iteration lines.
std::vector<double> numbers(const std::string& log, const std::string& field) {
  const std::regex pattern(" iteration .*\\| " + field + ": *([-0-9.E+infa]+) \\|");
  std::vector<double> found;
  for (std::sregex_iterator i(log.begin(), log.end(), pattern), end; i != end; ++i)
    found.push_back(std::stod((*i)[1]));
  return found;
}

std::map<std::string, at::Tensor> tensors(Trainer& trainer) {
  std::map<std::string, at::Tensor> all;
  const MainParameters& main = trainer.state.optimizer->main_parameters();
  for (std::size_t i = 0; i < main.tensors().size(); ++i) {
    all[main.pieces()[i].parameter->name()] = main.pieces()[i].parameter->value().clone();
    all["main." + main.pieces()[i].parameter->name()] = main.tensors()[i].clone();
  }
  trainer.state.optimizer->visit_state(
      [&](const ParameterPiece& piece, const std::string& state, at::Tensor& tensor) {
        all[state + "." + piece.parameter->name()] = tensor.clone();
      });
  return all;
}

const Flags kDynamic{"--fp16", "--initial-loss-scale", "1048576", "--loss-scale-window",
                     "2",      "--hysteresis",         "1",       "--min-loss-scale",
                     "1024"};

class ExactResume : public testing::TestWithParam<Flags> {};

TEST_P(ExactResume, StoppedAndResumedEqualsNeverStopped) {
  const TemporaryFolder root;
  const Flags flags = GetParam() + Flags{"--train-iters", "6", "--eval-iters", "0"};
  auto whole = small_run::run(flags);
  small_run::run(flags + Flags{"--save", root.path().string(), "--exit-interval", "3"});
  auto resumed = small_run::run(flags + Flags{"--load", root.path().string()});
  const auto expected = tensors(whole.trainer), found = tensors(resumed.trainer);
  ASSERT_EQ(expected.size(), found.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(at::equal(tensor, found.at(name))) << name;
  EXPECT_EQ(whole.trainer.state.progress, resumed.trainer.state.progress);
  EXPECT_EQ(whole.trainer.state.optimizer->num_steps(),
            resumed.trainer.state.optimizer->num_steps());
  EXPECT_EQ(whole.trainer.state.optimizer->loss_scale_state(),
            resumed.trainer.state.optimizer->loss_scale_state());
  if (GetParam() != kDynamic) return;
  const auto skipped = numbers(whole.log, "number of skipped iterations");
  ASSERT_EQ(skipped.size(), 6u);
  EXPECT_GT(skipped[2] + skipped[3], 0) << "no skipped step around the save\n" << whole.log;
}

INSTANTIATE_TEST_SUITE_P(Precisions, ExactResume,
                         testing::Values(Flags{"--bf16"}, kDynamic,
                                         Flags{"--bf16", "--optimizer", "sgd"},
                                         Flags{"--bf16", "--use-precision-aware-optimizer",
                                               "--exp-avg-dtype", "bf16", "--exp-avg-sq-dtype",
                                               "fp16", "--main-grads-dtype", "bf16"}));

TEST(PrecisionRun, LearnsWhatFp32Learns) {
  const auto wide = numbers(small_run::run({}).log, "lm loss");
  for (const Flags& flags : {Flags{"--bf16"}, Flags{"--fp16", "--loss-scale", "1024"},
                             Flags{"--bf16", "--calculate-per-token-loss"}}) {
    const auto narrow = numbers(small_run::run(flags).log, "lm loss");
    ASSERT_EQ(narrow.size(), wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i)
      EXPECT_NEAR(narrow[i], wide[i], 0.02) << i;  // bfloat16 has about three digits
  }
}

TEST(PrecisionRun, SkippedStepsAreCountedAndDoNotAdvanceTheSchedule) {
  auto outcome = small_run::run({"--fp16", "--initial-loss-scale", "8388608", "--hysteresis", "1",
                                 "--log-num-zeros-in-grad"});
  const auto skipped = numbers(outcome.log, "number of skipped iterations");
  const auto scales = numbers(outcome.log, "loss scale");
  ASSERT_EQ(scales.size(), 8u);
  std::int64_t applied = 0;
  double scale = 8388608;
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    if (skipped[i] > 0) scale /= 2;
    applied += skipped[i] == 0;
    EXPECT_NEAR(scales[i], scale, 0.1) << i;
  }
  EXPECT_GT(skipped[0], 0) << outcome.log;
  EXPECT_GT(applied, 0) << outcome.log;
  EXPECT_EQ(numbers(outcome.log, "grad norm").size(), static_cast<std::size_t>(applied))
      << "a skipped step has no norm";
  EXPECT_EQ(numbers(outcome.log, "num zeros").size(), static_cast<std::size_t>(applied));
  EXPECT_EQ(outcome.trainer.state.optimizer->num_steps(), applied);
  EXPECT_EQ(outcome.trainer.state.scheduler.num_steps(), applied * 4);
  EXPECT_EQ(outcome.trainer.state.progress.consumed_train_samples, 8 * 4);
}

TEST(PrecisionRun, DecoupledRateIsLoggedAndMovesTheEmbeddingAlone) {
  auto outcome = small_run::run(
      {"--decoupled-lr", "0", "--lr", "1e-2", "--train-iters", "3", "--weight-decay", "0"});
  EXPECT_THAT(outcome.log,
              testing::HasSubstr("| decoupled learning rate: 0.000000E+00 | global batch size:"));
  auto fresh = small_run::run({"--train-iters", "3", "--lr", "0", "--weight-decay", "0"});
  const auto moved = tensors(outcome.trainer), start = tensors(fresh.trainer);
  EXPECT_TRUE(at::equal(moved.at("embedding.word_embeddings.weight"),
                        start.at("embedding.word_embeddings.weight")));
  EXPECT_FALSE(at::equal(moved.at("decoder.final_layernorm.weight"),
                         start.at("decoder.final_layernorm.weight")));
}

}  // namespace
}  // namespace megatron
