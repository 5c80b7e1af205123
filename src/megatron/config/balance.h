// Divides the layers of a model into pipeline stages according to measured costs.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/pipeline_layout.h"

namespace megatron {

/// Costs in seconds of the forward and backward pass of one microbatch.
struct LayerCosts {
  double embedding_s = 0;
  double layer_s = 1;   ///< one transformer layer
  double output_s = 0;  ///< final norm, output layer and loss
};

/// Returns contiguous stages that minimize the cost of the most expensive rank (the sum of its
/// chunks), then the cost of the most expensive stage. Remaining layers go to the middle stages.
/// The first stage may contain only the embedding and the last only the output; every other stage
/// has at least one layer.
std::vector<StageLayers> balanced_stages(std::int64_t num_layers, const LayerCosts& costs,
                                         std::int64_t num_ranks, std::int64_t num_chunks,
                                         ChunkOrder order);

}  // namespace megatron
