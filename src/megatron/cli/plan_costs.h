// Parses --stage-times of `megatron plan` and computes the costs of pipeline stages from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace megatron
