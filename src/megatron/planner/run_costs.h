// The formulas of models/model_cost.h applied to a run's settings.
#pragma once

#include "megatron/config/settings.h"
#include "megatron/models/model_cost.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// The vocabulary of resolved settings, rounded up to --make-vocab-size-divisible-by ×
/// tensor-parallel ranks.
std::int64_t padded_vocab_size(const Settings& settings);

ModelDimensions run_dimensions(const Settings& settings);
MemoryLayout run_memory_layout(const Settings& settings, const Rank& rank,
                               std::int64_t num_microbatches);

}  // namespace megatron
