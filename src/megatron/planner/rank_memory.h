// Predicts the memory of a rank by part before a run. Weights, gradients and optimizer state follow
// from the parameters that the model declares on the rank, so they equal those of the run.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/models/model.h"
#include "megatron/models/model_family.h"
#include "megatron/params/parameter.h"
#include "megatron/planner/step_buffers.h"

namespace megatron {

struct Rank;
struct Settings;

/// Predicted bytes of one rank.
struct RankMemory {
  double parameters = 0;       ///< weights that layers compute with
  double main_parameters = 0;  ///< their float32 copies
  double gradients = 0;
  double optimizer_state = 0;
  double activations = 0;         ///< kept by layers for backward of all microbatches in flight
  double buffers = 0;             ///< what else a step holds at its peak (step_buffers.h)
  double expert_parameters = 0;   ///< the part of `parameters` that belongs to experts
  double num_expert_weights = 0;  ///< elements, without padding
  double num_dense_weights = 0;
  double offloaded_state = 0;        ///< of the optimizer, with main weights; outside memory
  double update_windows = 0;         ///< of offloaded state, at most, while weights are updated
  double offloaded_activations = 0;  ///< of one microbatch; outside memory
  double offloaded_weights = 0;      ///< outside memory
  /// The ranks of the pipeline that share each weight which this rank shares with others.
  std::vector<std::vector<std::int64_t>> sharing_stages = {};
  double total() const {
    return parameters + main_parameters + gradients + optimizer_state + activations + buffers;
  }
};

/// Returns the layers (0-based) of all chunks of a rank of the pipeline.
std::vector<std::int64_t> layers_of(const PipelineLayout& layout, std::int64_t pipeline_rank);

/// Returns what a rank of a pipeline with `layout` computes in a step.
StepShape step_shape(const Settings& settings, const Rank& rank, const PipelineLayout& layout,
                     std::int64_t num_microbatches);

/// Returns how many bytes of offloaded activations may wait to be copied: those of the largest
/// layer, within 16 to 256 MiB. More would hold the memory that the loss needs where a disk is
/// slower than the layers.
std::uint64_t offload_bytes_in_flight(const Settings& settings, const ModelFamily& family,
                                      const Rank& rank, const PipelineLayout& layout);

/// Returns the bytes of the parameters `declared`, in the order of the forward pass. Parameters
/// tagged expert are shared and sharded over rank.edp, all others over rank.dp_cp. `buffers` has
/// what the units of the model hold while they are used.
RankMemory parameter_memory(const std::vector<Parameter*>& declared, const Settings& settings,
                            const Rank& rank, const UnitParameters& units = {});

/// Returns the bytes of a rank in a pipeline with `layout`. `settings` must be resolved; `rank` may
/// lack communicators (make_rank()). `traces` are those of its model.
RankMemory predict_rank_memory(const Settings& settings, LayerTraces& traces, const Rank& rank,
                               const PipelineLayout& layout, std::int64_t num_microbatches);

}  // namespace megatron
