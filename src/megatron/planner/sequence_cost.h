// The time of a sequence on several ranks, for hybrid context parallelism.
#pragma once

#include "megatron/models/model_cost.h"
#include "megatron/schedules/hybrid_context_schedule.h"

namespace megatron {

/// Returns the cost of sequences of a model, in floating-point operations of forward and backward.
/// Sending a byte counts as a thousand of them: the 400 TFLOP/s of an H100 are 900 for each byte of
/// the 450 GB/s of its NVLink, and a core of 1 TFLOP/s with 1 GB/s over loopback has a thousand.
SequenceCost sequence_cost(const ModelDimensions& dimensions);

}  // namespace megatron
