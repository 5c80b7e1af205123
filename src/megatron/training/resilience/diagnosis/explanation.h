// Explains the first bad op of a trace in text: which op, which values, which samples, and whether
// its inputs were finite.
#pragma once

#include <string>

#include "megatron/training/resilience/diagnosis/op_trace.h"

namespace megatron {

/// Returns the explanation; each line starts with a line feed and two spaces. `microbatch` provides
/// the sample ordinals.
std::string explain(const OpTrace& trace, const ParamStore& weights, const Microbatch& microbatch);

/// Returns "samples 96, 97 of the training order" from the microbatch's sample ordinals.
std::string sample_list(const Microbatch& microbatch);

}  // namespace megatron
