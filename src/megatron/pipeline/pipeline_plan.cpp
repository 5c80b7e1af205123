#include "megatron/pipeline/pipeline_plan.h"

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate.h"

namespace megatron {
namespace {

/// Returns the named schedule that `auto` uses for requests other than a search.
const char* plain_schedule(const PipelineLayout& layout) {
  if (layout.order == ChunkOrder::v) return "zb-v";
  return layout.num_chunks > 1 ? "interleaved" : "1f1b";
}

}  // namespace

ScheduleRequest PipelinePlan::request(std::int64_t num_microbatches) const {
  return {.name = options_.schedule == "auto" ? plain_schedule(layout_) : options_.schedule,
          .num_ranks = layout_.num_ranks,
          .num_chunks = layout_.num_chunks,
          .num_microbatches = num_microbatches,
          .microbatch_group = options_.microbatch_group};
}

Schedule PipelinePlan::checked_with_messages(const Schedule& schedule, bool with_backward) const {
  Schedule complete = with_messages(schedule, options_.overlaps_messages);
  const auto problem = validate_schedule(complete, with_backward);
  MEGATRON_CHECK(!problem, schedule.name, ": ", problem.value_or(""));
  return complete;
}

Schedule PipelinePlan::search(std::int64_t num_microbatches) const {
  MEGATRON_CHECK(options_.costs.has_value(),
                 "--pipeline-schedule auto needs the costs of the stages");
  return search_schedule({.num_ranks = layout_.num_ranks,
                          .num_microbatches = num_microbatches,
                          .layouts = {{layout_.num_chunks, layout_.order, *options_.costs}},
                          .activation_limit = options_.activation_limit.value_or(0),
                          .microbatch_group = options_.microbatch_group})
      .schedule;
}

void PipelinePlan::use(const Schedule& schedule) {
  training_.insert_or_assign(schedule.num_microbatches, checked_with_messages(schedule, true));
}

const Schedule& PipelinePlan::training_schedule(std::int64_t num_microbatches) const {
  const auto found = training_.find(num_microbatches);
  if (found != training_.end()) return found->second;
  const Schedule schedule = options_.schedule == "auto" ? search(num_microbatches)
                                                        : make_schedule(request(num_microbatches));
  return training_
      .emplace(schedule.num_microbatches, checked_with_messages(schedule, /*with_backward=*/true))
      .first->second;
}

const Schedule& PipelinePlan::evaluation_schedule(std::int64_t num_microbatches) const {
  const auto found = evaluation_.find(num_microbatches);
  if (found != evaluation_.end()) return found->second;
  return evaluation_
      .emplace(num_microbatches,
               checked_with_messages(make_forward_schedule(request(num_microbatches)), false))
      .first->second;
}

namespace {

/// Returns a text such as "embedding, layers 0-3".
std::string content_of(const StageLayers& stage) {
  std::string text = stage.has_embedding ? "embedding" : "";
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const std::int64_t last = stage.first_layer + stage.num_layers - 1;
  if (stage.num_layers == 1) add("layer " + std::to_string(stage.first_layer));
  if (stage.num_layers > 1)
    add("layers " + std::to_string(stage.first_layer) + "-" + std::to_string(last));
  if (stage.has_output) add("output");
  return text.empty() ? "nothing" : text;
}

}  // namespace

std::string PipelinePlan::table(std::int64_t num_microbatches) const {
  const Schedule& schedule = training_schedule(num_microbatches);
  const Simulation expected = simulate(schedule, options_.costs.value_or(uniform_costs(schedule)));
  std::string text =
      format("pipeline %s of %ld ranks, %ld stages, %ld microbatches; bubble %.1f %% %s\n",
             schedule.name.c_str(), static_cast<long>(layout_.num_ranks),
             static_cast<long>(schedule.num_stages()), static_cast<long>(num_microbatches),
             100 * expected.total_bubble(),
             options_.costs ? "with the measured times" : "if all stages are equal");
  for (std::int64_t rank = 0; rank < layout_.num_ranks; ++rank) {
    text += "  rank " + std::to_string(rank) + "  ";
    for (std::int64_t chunk = 0; chunk < layout_.num_chunks; ++chunk)
      text += (chunk == 0 ? "" : " | ") + content_of(layout_.of(rank, chunk));
    text += '\n';
  }
  return text;
}

}  // namespace megatron
