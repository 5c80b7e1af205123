// Which layers a stage of the pipeline holds: from the flags, checked so that no layer is lost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/schedules/schedule.h"

namespace megatron {

struct LayerCosts;

/// One stage: consecutive layers of the decoder, and the ends of the model.
struct StageLayers {
  std::int64_t first_layer = 0, num_layers = 0;
  bool has_embedding = false, has_output = false;  ///< output: final norm, output layer and loss
  bool operator==(const StageLayers&) const = default;
};

struct PipelineLayout {
  std::int64_t num_ranks = 1, num_chunks = 1;
  ChunkOrder order = ChunkOrder::loop;
  std::vector<StageLayers> stages;  ///< num_ranks · num_chunks, in the order of the model

  const StageLayers& of(std::int64_t rank, std::int64_t chunk) const {
    return stages[static_cast<std::size_t>(stage_of(order, num_ranks, rank, chunk))];
  }
  bool operator==(const PipelineLayout&) const = default;
};

/// The whole model in one stage.
PipelineLayout single_stage_layout(std::int64_t num_layers);

/// The chunks of each rank: from --pipeline-model-parallel-layout, the flags of virtual stages, or
/// what the schedule implies. UserError when a layout does not parse, or virtual stages do not fit.
std::int64_t num_pipeline_chunks(const ParallelConfig& parallel, std::int64_t num_layers);

/// --pipeline-schedule, or what stands for it: interleaved with several chunks, else 1f1b.
/// UserError as num_pipeline_chunks.
std::string schedule_name(const ParallelConfig& parallel, std::int64_t num_layers);

/// What the flags ask for (--pipeline-model-parallel-size, --pipeline-schedule,
/// --pipeline-model-parallel-layout, …). UserError, naming the flag, when the layers do not fit.
/// `measured` is what --pipeline-split measured goes by; InternalError when that is asked for and
/// there are none.
PipelineLayout pipeline_layout(const ParallelConfig& parallel, std::int64_t num_layers,
                               const LayerCosts* measured = nullptr);

}  // namespace megatron
