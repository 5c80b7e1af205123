// Formats the output of `megatron plan --show-schedule` other than the drawing.
#pragma once

#include <string>
#include <vector>

#include "megatron/schedules/search.h"

namespace megatron {

/// Returns the schedule as JSON: every step of every rank with its times, and the totals.
std::string plan_json(const Schedule& schedule, const Simulation& run);

/// Returns one line per candidate: the fastest first, then the impossible ones with the reason.
std::string comparison_table(std::vector<ScheduleCandidate> candidates, double activation_limit);

/// Returns the lower bound of the time of any schedule, for each layout.
std::string lower_bound_text(const SearchRequest& request);

}  // namespace megatron
