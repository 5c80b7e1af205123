// --stage-times of `megatron plan`: what the stages of any cut of the model cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

/// "F,B,W" or "F,B,W,A" per part of the model in order, or one file with such lines; one alone is
/// what each of the ranks has in all its chunks. A: what a microbatch keeps there, by default so
/// much that a rank's share is 1. UserError naming --stage-times.
std::vector<StageCost> parse_stage_times(const std::vector<std::string>& words,
                                         std::int64_t num_ranks);

/// The costs of `num_stages` stages: a part is divided over several stages, or several parts make
/// one. UserError when neither goes.
std::vector<StageCost> regroup_stage_costs(const std::vector<StageCost>& parts,
                                           std::int64_t num_stages);

}  // namespace megatron
