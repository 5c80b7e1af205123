// Expected tags are those of Megatron-LM's training_log and evaluate_and_print_results.
#include "megatron/metrics/tensorboard.h"

#include <gmock/gmock.h>

#include <map>

#include "megatron/base/files.h"
#include "megatron/config/logger_config.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::UnorderedElementsAre;

class TensorBoardTest : public testing::Test {
 protected:
  LoggerConfig config() const { return {.tensorboard_dir = folder_.string()}; }
  /// Returns the x of the last point of each chart.
  std::map<std::string, std::int64_t> charts() const {
    std::map<std::string, std::int64_t> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      read_events(entry.path(), [&](const EventRecord& record) {
        for (const std::string& tag : record.tags) found[tag] = record.step;
        return true;
      });
    }
    return found;
  }
  StepMetrics step() const {
    return {.iteration = 4,
            .consumed_samples = 32,
            .losses = {{"lm loss", 2}},
            .grad_norm = 1,
            .memory = MemoryMetrics{}};
  }
  void write(const LoggerConfig& config, const auto& metrics) {
    TensorBoard board(config, 0);
    board.add(metrics);
    board.flush();
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "run";
};

TEST_F(TensorBoardTest, ChartsAStepOverIterationsAndSamples) {
  write(config(), step());
  EXPECT_THAT(
      charts(),
      UnorderedElementsAre(std::pair("learning-rate", 4), std::pair("learning-rate vs samples", 32),
                           std::pair("batch-size", 4), std::pair("batch-size vs samples", 32),
                           std::pair("lm loss", 4), std::pair("lm loss vs samples", 32),
                           std::pair("loss-scale", 4), std::pair("loss-scale vs samples", 32),
                           std::pair("grad-norm", 4), std::pair("grad-norm vs samples", 32)));
}

TEST_F(TensorBoardTest, FlagsAddAndRemoveCharts) {
  LoggerConfig chosen = config();
  chosen.log_loss_scale_to_tensorboard = false;
  chosen.log_memory_to_tensorboard = chosen.log_world_size_to_tensorboard = true;
  StepMetrics metrics = step();
  metrics.params_norm = 3;
  metrics.num_zeros = 7;
  metrics.decoupled_learning_rate = 1e-3;
  metrics.skipped_samples = 8;
  write(chosen, metrics);
  const auto found = charts();
  for (const char* tag :
       {"mem-reserved-bytes", "mem-allocated-bytes", "mem-max-allocated-bytes", "world-size",
        "world-size vs samples", "params-norm", "num-zeros vs samples", "decoupled-learning-rate",
        "skipped-train-samples"}) {
    EXPECT_TRUE(found.contains(tag)) << tag;
  }
  EXPECT_FALSE(found.contains("loss-scale"));
}

TEST_F(TensorBoardTest, PointsStandAtItsLogInterval) {
  LoggerConfig sparse = config();
  sparse.tensorboard_log_interval = 3;
  write(sparse, step());
  EXPECT_TRUE(charts().empty());
}

TEST_F(TensorBoardTest, TimersOnlyWhenAskedFor) {
  const IntervalMetrics interval{.iteration = 10,
                                 .iteration_s = 0.5,
                                 .throughput = 1.5,
                                 .timer_means = {{"forward-backward", 0.25}}};
  write(config(), interval);
  EXPECT_TRUE(charts().empty());
  LoggerConfig timed = config();
  timed.log_timers_to_tensorboard = true;
  write(timed, interval);
  EXPECT_THAT(charts(),
              UnorderedElementsAre(std::pair("iteration-time", 10), std::pair("throughput", 10),
                                   std::pair("forward-backward-time", 10)));
}

TEST_F(TensorBoardTest, EvaluationsCarryTheirSplitAndSet) {
  LoggerConfig perplexities = config();
  perplexities.log_validation_ppl_to_tensorboard = true;
  write(perplexities, EvaluationMetrics{.iteration = 5,
                                        .consumed_samples = 50,
                                        .split = "validation",
                                        .suffix = "-code",
                                        .losses = {{"lm loss", 1}, {"accuracy", 0.5}}});
  EXPECT_THAT(charts(),
              UnorderedElementsAre(std::pair("accuracy validation-code", 5),
                                   std::pair("accuracy validation-code vs samples", 50),
                                   std::pair("lm loss validation-code", 5),
                                   std::pair("lm loss validation-code vs samples", 50),
                                   std::pair("lm loss validation-code ppl", 5),
                                   std::pair("lm loss validation-code ppl vs samples", 50)));
}

}  // namespace
}  // namespace megatron
