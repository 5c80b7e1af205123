#include "megatron/pipeline/pipeline_plan.h"

#include "megatron/base/error.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate.h"

namespace megatron {

ScheduleRequest PipelinePlan::request(std::int64_t num_microbatches) const {
  return {.name = options_.schedule,
          .num_ranks = layout_.num_ranks,
          .num_chunks = layout_.num_chunks,
          .num_microbatches = num_microbatches,
          .microbatch_group = options_.microbatch_group};
}

Schedule PipelinePlan::finished(const Schedule& schedule, bool with_backward) const {
  Schedule complete = with_messages(schedule, options_.overlaps_messages);
  const auto problem = problem_of(complete, with_backward);
  MEGATRON_CHECK(!problem, schedule.name, ": ", problem.value_or(""));
  return complete;
}

void PipelinePlan::use(const Schedule& schedule) { training_.insert_or_assign(schedule.num_microbatches, finished(schedule, true)); }

const Schedule& PipelinePlan::training(std::int64_t num_microbatches) {
  const auto found = training_.find(num_microbatches);
  if (found != training_.end()) return found->second;
  use(make_schedule(request(num_microbatches)));
  return training_.at(num_microbatches);
}

const Schedule& PipelinePlan::evaluation(std::int64_t num_microbatches) {
  const auto found = evaluation_.find(num_microbatches);
  if (found != evaluation_.end()) return found->second;
  return evaluation_.emplace(num_microbatches, finished(make_forward_schedule(request(num_microbatches)), false)).first->second;
}

}  // namespace megatron
