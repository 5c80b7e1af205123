// How often to save a checkpoint, on paper.
#pragma once

namespace megatron {

/// Returns the time between saves, in seconds, that loses least: Daly, "A higher order estimate of
/// the optimum checkpoint interval for restart dumps", 2006, equation 37, which refines Young's
/// √(2 δ M). A save stops training for `save_s` (δ), and the job fails every `failure_s` (M).
double best_save_interval(double save_s, double failure_s);

/// Returns the share of the time that is lost with a save every `interval_s` (τ): δ / τ for saves,
/// and (τ + δ) / 2M for what is done again after failures.
double lost_share(double interval_s, double save_s, double failure_s);

}  // namespace megatron
