#include "megatron/pipeline/pipeline_plan.h"

#include <gtest/gtest.h>

#include "megatron/config/parallel_config.h"
#include "megatron/schedules/validate.h"

namespace megatron {
namespace {

/// Returns a layout of six layers on two ranks, as the flags of `schedule` make it.
PipelineLayout layout_of(const std::string& schedule, std::optional<std::int64_t> chunks) {
  ParallelConfig parallel;
  parallel.pipeline_model_parallel_size = 2;
  parallel.pipeline_schedule = schedule;
  parallel.num_virtual_stages_per_pipeline_rank = chunks;
  return pipeline_layout(parallel, 6);
}

TEST(PipelinePlan, ASearchedScheduleIsEvaluatedInEveryLayout) {
  for (const auto& [schedule, chunks] :
       {std::pair<std::string, std::optional<std::int64_t>>{"1f1b", {}},
        {"interleaved", 2},
        {"zb-v", {}}}) {
    const PipelineLayout layout = layout_of(schedule, chunks);
    PipelinePlan plan(layout, {.schedule = "auto"});
    for (const std::int64_t num_microbatches : {1, 3, 8}) {
      const Schedule& evaluation = plan.evaluation_schedule(num_microbatches);
      EXPECT_EQ(evaluation.num_chunks, layout.num_chunks);
      EXPECT_EQ(evaluation.order, layout.order);
      EXPECT_EQ(validate_schedule(evaluation, /*with_backward=*/false).value_or("none"), "none")
          << schedule;
    }
  }
}

}  // namespace
}  // namespace megatron
