// What of a model a rank holds: its stages of the pipeline, and which ends of the model are among
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/pipeline_layout.h"

namespace megatron {

struct ModelChunk {
  StageLayers stage;
  std::int64_t begin = 0;  ///< of its layers, among the rank's
  bool receives_hidden = false,
       sends_hidden = false;  ///< rows come from the stage before, go to the next
  /// A stage in front of the embedding or behind the output.
  bool is_empty() const { return !receives_hidden && !sends_hidden && !stage.has_output; }
};

struct ModelPart {
  std::vector<ModelChunk> chunks;
  std::vector<std::int64_t> layers;  ///< of all chunks
  bool has_embedding = false, has_output = false;
  bool has_ends_on_other_ranks = false;  ///< one of the ends is here, the other on another rank
};

/// The stage that has the embedding, or the output: `end` is a member of StageLayers that is true
/// for one stage.
std::int64_t stage_with(const PipelineLayout& layout, bool StageLayers::*end);

/// The part of the rank with this place on the pipeline's axis.
ModelPart model_part(const PipelineLayout& layout, std::int64_t pipeline_rank);

}  // namespace megatron
