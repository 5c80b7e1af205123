// Applies the formulas of models/model_cost.h to a run's settings.
#pragma once

#include <cstdint>

#include "megatron/models/model_cost.h"

namespace megatron {

struct Rank;
struct Settings;

/// Returns the vocabulary size of resolved settings, rounded up to a multiple of
/// --make-vocab-size-divisible-by × tensor-parallel size.
std::int64_t padded_vocab_size(const Settings& settings);

MemoryLayout run_memory_layout(const Settings& settings, const Rank& rank,
                               std::int64_t num_microbatches);

}  // namespace megatron
