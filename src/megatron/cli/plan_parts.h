// The parts of `megatron plan --show-schedule` other than the drawing: the costs of stages from
// --stage-times, and the output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/schedules/search.h"
#include "megatron/schedules/simulate.h"

namespace megatron {

/// Parses "F,B,W" or "F,B,W,A" for each part of the model in order, or one file with such lines. A
/// single entry is the total of each rank over all its chunks. A is the activation memory of a
/// microbatch; by default it is 1 per rank. Throws a UserError that names --stage-times.
std::vector<StageCost> parse_stage_times(const std::vector<std::string>& words,
                                         std::int64_t num_ranks);

/// Returns the costs of `num_stages` stages. A part is divided over several stages, or several
/// parts are added to one stage. Throws a UserError if the numbers fit neither.
std::vector<StageCost> regroup_stage_costs(const std::vector<StageCost>& parts,
                                           std::int64_t num_stages);

/// Returns the schedule as JSON: every step of every rank with its times, and the totals.
std::string plan_json(const Schedule& schedule, const Simulation& run);

/// Returns one line per candidate: the fastest first, then the impossible ones with the reason.
std::string comparison_table(std::vector<ScheduleCandidate> candidates, double activation_limit);

/// Returns the lower bound of the time of any schedule, for each layout.
std::string lower_bound_text(const SearchRequest& request);

}  // namespace megatron
