#include <algorithm>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/plan_parts.h"
#include "megatron/schedules/improve_schedule.h"

namespace megatron {
namespace {

JsonText step_json(const ScheduleStep& step, const StepSpan& span) {
  JsonText json{
      {"kind", name_of(step.kind)}, {"microbatch", step.microbatch}, {"chunk", step.chunk}};
  if (step.joins_next) json["joins_next"] = true;
  json["begin"] = span.begin_s;
  json["end"] = span.end_s;
  return json;
}

std::string chunks_text(const Schedule& schedule) {
  return std::to_string(schedule.num_chunks) + (schedule.order == ChunkOrder::v ? " (V)" : "");
}

}  // namespace

std::string plan_json(const Schedule& schedule, const Simulation& run) {
  JsonText ranks = JsonText::array();
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    JsonText steps = JsonText::array();
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i)
      steps.push_back(step_json(schedule.ranks[rank][i], run.spans[rank][i]));
    ranks.push_back({{"rank", rank},
                     {"busy", run.busy_s[rank]},
                     {"bubble", run.bubble(static_cast<std::int64_t>(rank))},
                     {"peak_activation", run.peak_activation[rank]},
                     {"steps", std::move(steps)}});
  }
  const JsonText json{{"schedule", schedule.name},
                      {"num_ranks", schedule.num_ranks},
                      {"num_chunks", schedule.num_chunks},
                      {"order", schedule.order == ChunkOrder::v ? "v" : "loop"},
                      {"num_microbatches", schedule.num_microbatches},
                      {"makespan", run.makespan_s},
                      {"bubble", run.total_bubble()},
                      {"ranks", std::move(ranks)}};
  return json.dump() + "\n";
}

std::string comparison_table(std::vector<ScheduleCandidate> candidates, double activation_limit) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const ScheduleCandidate& a, const ScheduleCandidate& b) {
                     return a.problem.empty() != b.problem.empty() ? a.problem.empty()
                                                                   : a.makespan_s < b.makespan_s;
                   });
  std::string text = format("%-16s %-7s %10s %9s %17s\n", "schedule", "chunks", "makespan",
                            "bubble", "peak activations");
  for (const ScheduleCandidate& candidate : candidates) {
    const Schedule& schedule = candidate.schedule;
    text += format("%-16s %-7s ", schedule.name.c_str(), chunks_text(schedule).c_str());
    if (!candidate.problem.empty()) {
      text += candidate.problem + "\n";
      continue;
    }
    const bool is_above =
        activation_limit > 0 && candidate.peak_activation > activation_limit * (1 + 1e-9);
    text += format("%10.5g %7.1f %% %17.4g%s\n", candidate.makespan_s, 100 * candidate.total_bubble,
                   candidate.peak_activation, is_above ? "  above the limit" : "");
  }
  return text;
}

std::string lower_bound_text(const SearchRequest& request) {
  std::string text;
  for (const SearchLayout& layout : request.layouts) {
    const Schedule shape{.num_ranks = request.num_ranks,
                         .num_chunks = layout.num_chunks,
                         .num_microbatches = request.num_microbatches,
                         .order = layout.order,
                         .ranks = {}};
    text += (text.empty() ? "no schedule takes less than " : ", ") +
            format("%.5g", makespan_lower_bound(shape, layout.costs)) + " with " +
            chunks_text(shape) + (layout.num_chunks == 1 ? " chunk" : " chunks");
  }
  return text + "\n";
}

}  // namespace megatron
