// Assigns the layers of the model to pipeline stages according to the flags, and checks that every
// layer is assigned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron {

struct ParallelConfig;
struct LayerCosts;
struct TransformerConfig;

/// One stage: consecutive layers, and whether it contains the embedding or the output.
struct StageLayers {
  std::int64_t first_layer = 0, num_layers = 0;
  std::int64_t num_mtp = 0;  ///< of num_layers: the last ones, which are multi-token prediction
  bool has_embedding = false, has_output = false;  ///< output: final norm, output layer and loss

  /// Returns how often the stage embeds tokens: each depth of multi-token prediction does, too.
  std::int64_t num_embeddings(const TransformerConfig& model) const;
  bool operator==(const StageLayers&) const = default;
};

/// The stages of a model, and how they are assigned to ranks and chunks.
struct PipelineLayout {
  std::int64_t num_ranks = 1, num_chunks = 1;
  ChunkOrder order = ChunkOrder::loop;
  std::vector<StageLayers> stages;  ///< num_ranks · num_chunks, in the order of the model

  const StageLayers& of(std::int64_t rank, std::int64_t chunk) const {
    return stages[static_cast<std::size_t>(stage_of(order, num_ranks, rank, chunk))];
  }
  bool operator==(const PipelineLayout&) const = default;
};

/// Returns a layout with the whole model in one stage.
PipelineLayout single_stage_layout(std::int64_t num_layers, std::int64_t num_mtp = 0);

/// Returns the number of chunks per rank: from --pipeline-model-parallel-layout, from the flags of
/// virtual stages, or as the schedule implies. Throws a UserError if the layout cannot be parsed or
/// the virtual stages do not fit.
std::int64_t num_pipeline_chunks(const ParallelConfig& parallel, std::int64_t num_layers);

/// Returns --pipeline-schedule or its default: interleaved with several chunks, else 1f1b. Throws
/// like num_pipeline_chunks().
std::string schedule_name(const ParallelConfig& parallel, std::int64_t num_layers);

/// Returns the layout that the flags describe (--pipeline-model-parallel-size, --pipeline-schedule,
/// --pipeline-model-parallel-layout, …). Throws a UserError that names the flag if the layers do
/// not fit. --pipeline-split measured uses the costs `measured`; it is an InternalError if they are
/// missing.
PipelineLayout pipeline_layout(const ParallelConfig& parallel, std::int64_t num_layers,
                               const LayerCosts* measured = nullptr);
/// Does so for the layers of a model. Those of multi-token prediction are in the stage of the
/// output unless --pipeline-model-parallel-layout names another.
PipelineLayout pipeline_layout(const ParallelConfig& parallel, const TransformerConfig& model,
                               const LayerCosts* measured = nullptr);

}  // namespace megatron
