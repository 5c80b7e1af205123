// What each rank writes of a checkpoint, and how often to save one, on paper.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/models/model_family.h"

namespace megatron {

struct Settings;

/// Bytes that a rank writes; replicas share evenly what they hold alike.
struct CheckpointShare {
  double weights = 0;
  double optimizer = 0;  ///< its states, and float32 copies of weights
};

/// Returns the share of each rank of a pipeline. A small weight that all ranks of tensor
/// parallelism hold counts on each of them. `settings` must pass check_layout().
std::vector<CheckpointShare> checkpoint_shares(const Settings& settings, const ModelFamily& family,
                                               std::int64_t world_size);

/// Returns the time between saves, in seconds, that loses least: Daly, "A higher order estimate of
/// the optimum checkpoint interval for restart dumps", 2006, equation 37, which refines Young's
/// √(2 δ M). A save stops training for `save_s` (δ), and the job fails every `failure_s` (M).
double best_save_interval(double save_s, double failure_s);

/// Returns the share of the time that is lost with a save every `interval_s` (τ): δ / τ for saves,
/// and (τ + δ) / 2M for what is done again after failures.
double lost_share(double interval_s, double save_s, double failure_s);

}  // namespace megatron
