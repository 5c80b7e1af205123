// What one training step computed, and whether its update was applied.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/metrics/step_metrics.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/schedules/hybrid_context_summary.h"

namespace megatron {

struct PerLayerNorms;

/// A loss of a step under its name in the log.
struct LossTotal {
  std::string name;
  double sum = 0, count = 0;  ///< over all microbatches
  double mean() const { return sum / (count > 0 ? count : 1); }
};

struct TrainStepResult {
  std::vector<LossTotal> losses = {};          ///< the terms of the model's objective
  std::vector<double> microbatch_losses = {};  ///< Σ of all losses of each microbatch, in order
  StepResult update;
  std::vector<LayerRouting> routing = {};          ///< of the layers with experts
  std::optional<double> max_attention_logit = {};  ///< with --log-max-attention-logit or --qk-clip
  std::optional<HybridContextSummary> hybrid_context = {};  ///< with hybrid context parallelism
  /// Microbatch::computed_samples() of the step; zeros with context parallelism.
  std::pair<double, double> computed_samples = {};
  /// Null unless --log-layer-norms-interval requests them in this step.
  std::shared_ptr<const PerLayerNorms> layer_norms = {};
  /// Return the first loss and what it is a mean over: the counted tokens of a language model.
  double loss() const { return losses.front().mean(); }
  double tokens() const { return losses.front().count; }
};

}  // namespace megatron
