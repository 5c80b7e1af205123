// Closed forms of the cost of failures, for exponential times between failures (J. W. Young, "A
// first order approximation to the optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly, "A
// higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006).
#pragma once

#include <cmath>

namespace megatron {

/// Returns Young's interval of computation between saves: sqrt(2 · save · MTBF).
inline double young_interval_s(double save_s, double mean_between_failures_s) {
  return std::sqrt(2 * save_s * mean_between_failures_s);
}

/// Returns Daly's expected share of the time that computes for the first time: work / (M · e^(R/M)
/// · (e^((τ+δ)/M) − 1) · work/τ), with the mean time between failures M, which includes those
/// during a restart, a restart of R, the interval τ and the save δ.
inline double daly_effective_share(double interval_s, double save_s, double restart_s,
                                   double mean_between_failures_s) {
  const double m = mean_between_failures_s;
  return interval_s / (m * std::exp(restart_s / m) * std::expm1((interval_s + save_s) / m));
}

}  // namespace megatron
