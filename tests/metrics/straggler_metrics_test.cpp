
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/metrics/prometheus.h"
#include "megatron/metrics/step_metrics.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

StepMetrics slow_step() {
  StepMetrics step{.iteration = 20};
  step.stragglers = StragglerMetrics{
      .first_iteration = 16,
      .last_iteration = 20,
      .parts = {{.part = "forward", .fastest = {{1, 0.25}}, .slowest = {{2, 0.5}}}},
      .stragglers = {{.rank = 2,
                      .host = "node-\"7",
                      .parts = {{.part = "forward", .own_s = 0.5, .peers_s = 0.25, .ratio = 2}}}}};
  return step;
}

TEST(StragglerMetrics, AreInTheLineOfTheStep) {
  const std::string line = json_line(slow_step()).dump();
  EXPECT_THAT(
      line,
      HasSubstr(
          R"("own_time":{"first_iteration":16,"last_iteration":20,"forward":{"fastest":[{"rank":1,)"
          R"("ms":250.0}],"slowest":[{"rank":2,"ms":500.0}]}})"));
  EXPECT_THAT(
      line,
      HasSubstr(R"("stragglers":[{"rank":2,"host":"node-\"7","parts":{"forward":{"own_ms":500.0,)"
                R"("peers_ms":250.0,"ratio":2.0}}}])"));
  EXPECT_THAT(json_line(StepMetrics{}).dump(), Not(HasSubstr("stragglers")));
}

TEST(StragglerMetrics, AreServedUntilTheNextOnes) {
  PrometheusCollector collector;
  collector.add(StepMetrics{.iteration = 19});
  EXPECT_THAT(collector.text(), Not(HasSubstr("straggler")));
  collector.add(slow_step());
  collector.add(StepMetrics{.iteration = 21});
  EXPECT_THAT(
      collector.text(),
      AllOf(HasSubstr("megatron_training_iteration 21\n"),
            HasSubstr("megatron_training_slowest_rank_seconds{part=\"forward\"} 0.5\n"),
            HasSubstr("megatron_training_fastest_rank_seconds{part=\"forward\"} 0.25\n"),
            HasSubstr("megatron_training_stragglers 1\n"),
            HasSubstr("megatron_training_straggler_ratio{rank=\"2\",host=\"node-\\\"7\",part="
                      "\"forward\"} 2\n")));
  StepMetrics fast = slow_step();
  fast.stragglers->stragglers.clear();
  collector.add(fast);
  EXPECT_THAT(collector.text(), AllOf(HasSubstr("megatron_training_stragglers 0\n"),
                                      Not(HasSubstr("straggler_ratio"))));
}

}  // namespace
}  // namespace megatron
