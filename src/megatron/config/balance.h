// Cuts a model into stages by what its parts cost.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/pipeline_layout.h"

namespace megatron {

/// Seconds of one microbatch, forward and backward.
struct LayerCosts {
  double embedding_s = 0;
  double layer_s = 1;   ///< each
  double output_s = 0;  ///< final norm, output layer and loss
};

/// Contiguous stages whose most expensive rank, all its chunks together, is as cheap as can be;
/// among those, whose most expensive stage is; among those, the odd layers stand in the middle. The
/// first stage may hold the embedding alone, the last the output alone, every other has a layer.
std::vector<StageLayers> balanced_stages(std::int64_t num_layers, const LayerCosts& costs,
                                         std::int64_t num_ranks, std::int64_t num_chunks,
                                         ChunkOrder order);

}  // namespace megatron
