// What `megatron plan --show-schedule` prints besides the drawing.
#pragma once

#include <string>
#include <vector>

#include "megatron/schedules/search.h"

namespace megatron {

/// The whole table as JSON: every step of every rank with its times, and the figures.
std::string plan_json(const Schedule& schedule, const Simulation& run);

/// One line per candidate, the shortest first, then those that are not possible, with the reason.
std::string comparison_table(std::vector<ScheduleCandidate> candidates, double activation_limit);

/// What no schedule can be shorter than, of each layout.
std::string lower_bound_text(const SearchRequest& request);

}  // namespace megatron
