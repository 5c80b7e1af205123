// The stages and the schedule of a run, from its flags and, where these ask for it, from times
// measured here.
#pragma once

#include <iosfwd>

#include "megatron/config/settings.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/mesh.h"
#include "megatron/parallel/rank.h"
#include "megatron/pipeline/pipeline_plan.h"

namespace megatron {

/// What --pipeline-split and --pipeline-schedule ask for; `settings` resolved and valid. Prints
/// what was measured. UserError when layers do not fit. Collective over the world.
PipelinePlan plan_pipeline(const Settings& settings, const Rank& rank, std::ostream& out);

/// The axis of the two ranks whose stages share the word embeddings' weight; of size 1 on all
/// others and where none do. Collective over the two.
Axis embedding_axis(const Settings& settings, const PipelineLayout& layout, const Mesh& mesh,
                    const Rank& rank, Communicators* communicators);

}  // namespace megatron
