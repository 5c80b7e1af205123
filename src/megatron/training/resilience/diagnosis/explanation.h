// The first bad op of a trace in words: where, what, which samples, and whether what went in was
// sound.
#pragma once

#include <string>

#include "megatron/training/resilience/diagnosis/op_trace.h"

namespace megatron {

/// Lines, each with a line feed in front and indented by two. `microbatch` names the samples.
std::string explain(const OpTrace& trace, const ParamStore& weights, const Microbatch& microbatch);

/// "samples 96, 97 of the training order" (ordinals).
std::string sample_list(const Microbatch& microbatch);

}  // namespace megatron
