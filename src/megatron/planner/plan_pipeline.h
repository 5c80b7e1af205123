// Chooses the pipeline stages and the schedule of a run from its flags and, if they request it,
// from layer times measured on this machine.
#pragma once

#include <iosfwd>

#include "megatron/models/model_family.h"
#include "megatron/parallel/axis.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/mesh.h"
#include "megatron/pipeline/pipeline_plan.h"

namespace megatron {

struct Rank;
struct Settings;

/// Returns the plan that --pipeline-split and --pipeline-schedule request; `settings` must be
/// resolved and valid. Prints the measured times. UserError when the layers cannot be split.
/// Collective over the world.
PipelinePlan plan_pipeline(const Settings& settings, const ModelFamily& family, const Rank& rank,
                           std::ostream& out);

/// Returns the axis of the two ranks whose stages share the word embedding weight; an axis of size
/// 1 on all other ranks, or when no stages share it. Collective over the two ranks.
Axis embedding_axis(const Settings& settings, const PipelineLayout& layout, const Mesh& mesh,
                    const Rank& rank, Communicators* communicators);

}  // namespace megatron
