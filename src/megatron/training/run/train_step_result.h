// What one training step computed, and whether its update was applied.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "megatron/metrics/routing_metrics.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/schedules/hybrid_context_summary.h"

namespace megatron {

struct PerLayerNorms;

struct TrainStepResult {
  double loss_sum = 0;  ///< Σloss over the tokens that the loss mask counts
  double tokens = 0;
  std::vector<double> microbatch_losses = {};  ///< Σloss of each microbatch, in order
  StepResult update;
  std::vector<LayerRouting> routing = {};                   ///< of the layers with experts
  std::optional<HybridContextSummary> hybrid_context = {};  ///< with hybrid context parallelism
  /// Null unless --log-layer-norms-interval requests them in this step.
  std::shared_ptr<const PerLayerNorms> layer_norms = {};
  double loss() const { return loss_sum / (tokens > 0 ? tokens : 1); }
};

}  // namespace megatron
