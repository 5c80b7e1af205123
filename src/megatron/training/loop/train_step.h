// One training step: forward and backward of every microbatch, then one update of the weights. All
// of it is queued on the device; the host reads what came of it once, at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/models/language_model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/pipeline/pipeline_plan.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/training/feeding/microbatch_source.h"
#include "megatron/training/observability/timers.h"

namespace megatron {

struct TrainStepOptions {
  std::int64_t iteration = 0;  ///< one-based, for messages
  std::int64_t num_microbatches = 1;
  std::int64_t first_ordinal = 0;  ///< consumed samples at the start of the step
  bool calculate_per_token_loss =
      false;  ///< gradients divided once by the tokens of the step, not per microbatch
  bool check_for_nan = true;  ///< throw NonFiniteError instead of skipping the update
  StepOptions update = {};
  std::string non_finite_checkpoint =
      {};  ///< what is not finite in the weights that were loaded, for messages; empty: nothing
};

struct PerLayerNorms;

struct TrainStepResult {
  double loss_sum = 0;  ///< over the tokens counted by the loss mask
  double tokens = 0;
  std::vector<double> microbatch_losses = {};  ///< Σ of each microbatch, in order
  StepResult update;
  std::shared_ptr<const PerLayerNorms> layer_norms =
      {};  ///< where --log-layer-norms-interval asks for them
  double loss() const { return loss_sum / (tokens > 0 ? tokens : 1); }
};

/// What a step works on.
struct TrainStepContext {
  LanguageModel& model;
  ParamStore& weights;
  Optimizer& optimizer;
  MicrobatchSource& source;
  Timers& timers;
  const Rank& rank;
  PipelinePlan& pipeline;
  StepListener* steps = nullptr;  ///< hears of the schedule's steps
};

/// What a step's microbatches came to on all data-parallel ranks together, on the device: float64
/// [num_microbatches].
struct StepLosses {
  at::Tensor sums, tokens;
};

/// The step's microbatches of this rank; gives its samples their coordinates: first_ordinal and
/// their place in the global batch.
std::vector<Microbatch> fetch_microbatches(const TrainStepContext& context,
                                           const TrainStepOptions& options);
/// Queues forward and backward of every microbatch: the finished gradients of the step, whatever
/// they were before. Changes nothing else, so it may be repeated.
StepLosses forward_backward(const TrainStepContext& context, const TrainStepOptions& options,
                            const std::vector<Microbatch>& batch);
/// Queues the update. A loss or gradient that is not finite leaves the weights as they are.
void update_weights(const TrainStepContext& context, const TrainStepOptions& options,
                    const StepLosses& losses);
/// The one place where the host waits for the step.
TrainStepResult read_step(const TrainStepContext& context, const TrainStepOptions& options,
                          const StepLosses& losses);

/// Runs one step: the four above, collective over the world. A loss or gradient that is not finite
/// leaves weights and optimizer state as they are; with `check_for_nan` it throws NonFiniteError.
/// Loss normalisation is Megatron's: each microbatch's Σloss over its own tokens, averaged over the
/// microbatches of all data-parallel ranks.
TrainStepResult train_step(const TrainStepContext& context, const TrainStepOptions& options);

}  // namespace megatron
