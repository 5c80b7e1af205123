// Expected lines come from the format strings of Megatron-LM's training_log and
// evaluate_and_print_results, evaluated by Python.
#include "megatron/training/observability/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/nn/head.h"

namespace megatron {
namespace {

using testing::HasSubstr;

IterationReport example() {
  IterationReport report{.step = {}, .shows_throughput = true};
  StepMetrics& step = report.step;
  step.iteration = 10;
  step.train_iters = 100;
  step.consumed_samples = 320;
  step.elapsed_s = 0.12344;
  step.throughput = {.tokens_per_second = 1234.4, .flops_per_second = 1.23e12};
  step.learning_rate = 1e-4;
  step.global_batch_size = 32;
  step.losses = {{"lm loss", 4.56789}};
  step.grad_norm = 1.2344;
  return report;
}

TEST(IterationLine, IsMegatronsLineWithTokensPerSecondBehind) {
  EXPECT_EQ(iteration_line(example(), "2026-01-01 12:00:00"),
            " [2026-01-01 12:00:00] iteration       10/     100 | consumed samples:          320 | "
            "elapsed time per iteration (ms): 123.4 | "
            "throughput per GPU (TFLOP/s/GPU): 1.2 | learning rate: 1.000000E-04 | global batch "
            "size:    32 | lm loss: 4.567890E+00 | "
            "loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of "
            "nan iterations:   0 | tokens per second: 1234 |");
}

TEST(IterationLine, OptionalFieldsStandWhereMegatronPutsThem) {
  IterationReport report = example();
  report.shows_throughput = false;
  report.step.grad_norm.reset();
  report.step.skipped_samples = 64;
  report.step.num_zeros = 7;
  report.step.max_attention_logit = 3.25;
  report.step.params_norm = 42.5;
  report.skipped_iterations = 2;
  report.nan_iterations = 1;
  EXPECT_EQ(iteration_line(report, "T"),
            " [T] iteration       10/     100 | consumed samples:          320 | skipped samples:  "
            "         64 | elapsed time per iteration "
            "(ms): 123.4 | learning rate: 1.000000E-04 | global batch size:    32 | lm loss: "
            "4.567890E+00 | loss scale: 1.0 | num zeros: 7 | "
            "params norm: 42.500 | max attention logit: 3.250 | number of skipped iterations:   2 "
            "| number of nan iterations:   "
            "1 | tokens per second: 1234 |");
}

// Megatron prints the dictionary of losses in its order.
TEST(IterationLine, ShowsEveryLoss) {
  const NamedLosses losses{{"lm loss", 7.25}, {"sop loss", 0.6931472}};
  IterationReport report = example();
  report.step.losses = losses;
  report.step.grad_norm.reset();
  EXPECT_THAT(iteration_line(report, "T"),
              HasSubstr("| lm loss: 7.250000E+00 | sop loss: 6.931472E-01 | loss scale: 1.0 |"));
  EXPECT_THAT(validation_block("iteration 10", losses),
              HasSubstr(" | lm loss value: 7.250000E+00 | lm loss PPL: 1.408105E+03 | sop loss "
                        "value: 6.931472E-01 | sop loss PPL: 2.000000E+00 | \n"));
}

TEST(ValidationBlock, AnAccuracyHasNoPerplexity) {
  EXPECT_THAT(validation_block("iteration 10", {{"lm loss", 7.25}, {kAccuracy, 0.5}}),
              HasSubstr("| lm loss PPL: 1.408105E+03 | accuracy value: 5.000000E-01 | \n"));
}

TEST(ValidationBlock, IsFramedByDashesOneLongerThanTheLine) {
  const std::string line =
      " validation loss at iteration 10 | lm loss value: 1.500000E+00 | lm loss PPL: 4.481689E+00 "
      "| ";
  const std::string frame(line.size() + 1, '-');
  EXPECT_EQ(validation_block("iteration 10", {{"lm loss", 1.5}}),
            frame + "\n" + line + "\n" + frame);
}

TEST(ValidationBlock, PerplexityStopsAtExpOfTwenty) {
  EXPECT_DOUBLE_EQ(perplexity(1000), 485165195.4097903);
}

TEST(EventLine, HasMegatronsSpelling) {
  EXPECT_EQ(event_line("after training is done", "T"), "[after training is done] datetime: T ");
}

}  // namespace
}  // namespace megatron
