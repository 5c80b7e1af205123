// One training step: fetch_microbatches(), forward_backward(), update_weights(), read_step(). All
// work is queued on the device; the host synchronizes once, at the end, to read the results.
// (Layers with experts synchronize too: the rows that ranks exchange depend on the routing.)
//
// Losses are normalized as in Megatron: each microbatch's Σloss is divided by its own count (of
// tokens, or Objective::count), then averaged over the microbatches of all data-parallel ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/models/model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"
#include "megatron/pipeline/pipeline_plan.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/training/feeding/microbatch_source.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/run/train_step_result.h"

namespace megatron {

struct Rank;

/// The settings of QK clip (finish_attention_step()).
struct QkClip {
  double alpha = 0.5, threshold = 100;
};

struct TrainStepOptions {
  std::int64_t iteration = 0;  ///< one-based, for messages
  /// Microbatches of a rank; with hybrid context parallelism the data decides.
  std::int64_t num_microbatches = 1;
  std::int64_t first_ordinal = 0;  ///< number of samples consumed before the step
  /// Divide gradients once by the objective's count of the step, not per microbatch.
  bool calculate_per_token_loss = false;
  /// A non-finite loss prevents the update too, and GuardedStep throws NonFiniteError.
  bool check_for_nan = true;
  StepOptions update = {};
  bool log_max_attention_logit = false;
  std::optional<QkClip> qk_clip = {};
  /// Describes non-finite weights of the loaded checkpoint, for error messages; empty if none.
  std::string non_finite_checkpoint = {};
};

/// The objects that a training step uses.
struct TrainStepContext {
  Model& model;
  ParamStore& weights;
  Optimizer& optimizer;
  MicrobatchSource& source;
  Timers& timers;
  const Rank& rank;
  const PipelinePlan& pipeline;
  StepListener* steps = nullptr;  ///< notified of each step of the pipeline schedule; may be null
};

/// Returns what the gradients of a rank must be divided by beforehand, so that the reduced
/// gradients (summed over dp-cp, or averaged) are the mean over the ranks of dp.
double loss_divisor(const TrainStepContext& context);

/// Sums and counts of the objective's terms per microbatch, summed over all data-parallel ranks;
/// float64 [terms, num_microbatches] on the device.
struct StepLosses {
  at::Tensor sums, counts;
  /// Microbatch::computed_samples() of all data-parallel ranks: float64 [2]; undefined with context
  /// parallelism.
  at::Tensor computed_samples = {};
};

/// Returns this rank's microbatches of the step. Adds first_ordinal and the position in the global
/// batch to their sample ordinals.
std::vector<Microbatch> fetch_microbatches(const TrainStepContext& context,
                                           const TrainStepOptions& options);
/// Returns how the documents of a step lie on the ranks, with hybrid context parallelism.
std::optional<HybridContextSummary> hybrid_context_of(const std::vector<Microbatch>& batch);
/// Queues forward and backward of every microbatch and overwrites the gradients and the routers'
/// statistics. Changes nothing else, so it may be repeated.
StepLosses forward_backward(const TrainStepContext& context, const TrainStepOptions& options,
                            const std::vector<Microbatch>& batch);
/// Queues the weight update. The update leaves the weights unchanged when a loss or gradient is not
/// finite.
void update_weights(const TrainStepContext& context, const TrainStepOptions& options,
                    const StepLosses& losses);
/// Waits for the device and reads the results of the step. Moves the expert biases of routers, and
/// clips the weights of queries and keys.
TrainStepResult read_step(const TrainStepContext& context, const TrainStepOptions& options,
                          const StepLosses& losses);

}  // namespace megatron
