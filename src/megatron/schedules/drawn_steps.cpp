#include "megatron/schedules/drawn_steps.h"

#include <array>
#include <cmath>

namespace megatron {
namespace {

std::string count(std::int64_t number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

}  // namespace

std::vector<DrawnStep> drawn_steps(const Schedule& schedule, const Simulation& run,
                                   std::size_t rank) {
  std::vector<DrawnStep> cells;
  bool joins = false;
  for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
    const ScheduleStep& step = schedule.ranks[rank][i];
    if (is_message(step.kind)) continue;
    const StepSpan& span = run.spans[rank][i];
    cells.push_back({step, span.begin_s, span.end_s, joins || step.joins_next});
    joins = step.joins_next;
  }
  return cells;
}

std::vector<StepKind> kinds_of(const Schedule& schedule) {
  std::array<bool, 4> seen{};
  for (const auto& steps : schedule.ranks) {
    for (const ScheduleStep& step : steps) {
      if (!is_message(step.kind)) seen[static_cast<std::size_t>(step.kind)] = true;
    }
  }
  std::vector<StepKind> kinds;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) kinds.push_back(static_cast<StepKind>(i));
  }
  return kinds;
}

std::string title_of(const Schedule& schedule) {
  return schedule.name + ": " + count(schedule.num_ranks, "rank") +
         (schedule.num_chunks > 1 ? ", " + count(schedule.num_chunks, "chunk") + " each" : "") +
         ", " + std::to_string(schedule.num_microbatches) +
         (schedule.num_microbatches == 1 ? " microbatch" : " microbatches");
}

double tick_distance(double least) {
  if (!(least > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace megatron
