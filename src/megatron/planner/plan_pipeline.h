// Chooses the pipeline stages and the schedule of a run from its flags and, if they request it,
// from layer times measured on this machine.
#pragma once

#include <iosfwd>

#include "megatron/models/model_family.h"
#include "megatron/pipeline/pipeline_plan.h"

namespace megatron {

struct Rank;
struct Settings;

/// Returns the plan that --pipeline-split and --pipeline-schedule request; `settings` must be
/// resolved and valid. Prints the measured times. UserError when the layers cannot be split.
/// Collective over the world.
PipelinePlan plan_pipeline(const Settings& settings, const ModelFamily& family, const Rank& rank,
                           std::ostream& out);

}  // namespace megatron
