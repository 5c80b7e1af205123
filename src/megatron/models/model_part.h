// The part of a model that a rank holds: its pipeline stages, and whether the embedding and the
// output are among them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "megatron/config/pipeline_layout.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// One pipeline stage of a rank.
struct ModelChunk {
  StageLayers stage;
  bool receives_hidden = false;  ///< hidden rows come from the previous stage
  bool sends_hidden = false;     ///< hidden rows go to the next stage
  /// Returns true for a stage before the embedding or after the output, which has no work.
  bool is_empty() const { return !receives_hidden && !sends_hidden && !stage.has_output; }
};

/// All pipeline stages of a rank, in order.
struct ModelPart {
  std::vector<ModelChunk> chunks;
  bool has_embedding = false, has_output = false;
  StageHolders ends;  ///< the ranks with the embedding and with the output
};

/// Returns the stage that holds the embedding or the output. `end` points to the member of
/// StageLayers that is true for exactly that stage.
std::int64_t stage_with(const PipelineLayout& layout, bool StageLayers::*end);

/// Returns who holds a weight that each stage declares for which `declares` returns true, as the
/// rank with index `pipeline_rank` on the pipeline axis sees it.
StageHolders stage_holders(const PipelineLayout& layout, std::int64_t pipeline_rank,
                           const std::function<bool(const StageLayers&)>& declares);

/// Returns the part of the rank with index `pipeline_rank` on the pipeline axis.
ModelPart model_part(const PipelineLayout& layout, std::int64_t pipeline_rank);

}  // namespace megatron
