// Which activations of each layer backward computes again, as the flags or a memory budget say.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/pipeline_layout.h"

namespace megatron {

struct MemoryConfig;

/// What is recomputed of one layer.
struct LayerRecompute {
  /// Neighbouring layers of a pipeline stage with the same number are recomputed together, from the
  /// input of the first; 0: the layer is not recomputed as a whole.
  std::int64_t group = 0;
  /// Parts of a layer that is not recomputed as a whole: the outputs of its norms, and its blocks.
  bool layernorm = false, mlp = false, moe = false, shared_experts = false;
  bool operator==(const LayerRecompute&) const = default;
};

/// The recomputation of a model.
struct RecomputePlan {
  std::vector<LayerRecompute> layers;          ///< of the whole model; empty: nothing is recomputed
  bool distributes_saved_activations = false;  ///< over tp

  LayerRecompute of(std::int64_t layer) const {
    return layers.empty() ? LayerRecompute{} : layers.at(static_cast<std::size_t>(layer));
  }
};

/// Returns the plan that the flags describe. The flags must be valid. Core attention and the
/// activations of MLPs and experts are recomputed by their backward kernels, whatever the flags.
RecomputePlan recompute_plan(const MemoryConfig& config, const PipelineLayout& layout);

}  // namespace megatron
