// The time of a sequence on several ranks, for hybrid context parallelism.
#pragma once

#include "megatron/models/model_cost.h"
#include "megatron/schedules/hybrid_context_schedule.h"

namespace megatron {

/// Returns the cost of sequences of a model, in floating-point operations of forward and backward.
/// Sending a byte counts as a thousand of them, which is about right for a GPU and its network as
/// for a CPU and its memory.
SequenceCost sequence_cost(const ModelDimensions& dimensions);

}  // namespace megatron
