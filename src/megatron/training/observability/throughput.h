// Computes training throughput: tokens/s, model FLOP/s, and model FLOPs utilization (MFU) in both
// conventions.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/metrics/step_metrics.h"
#include "megatron/models/model_cost.h"

namespace megatron {

/// Work done in a period of time.
struct TrainedWork {
  double samples = 0, tokens = 0, seconds = 0;
  /// Σ (length / s)² over samples of which the layers compute `length` of s positions, where
  /// `samples` is Σ length / s. Unset: all positions of all samples.
  std::optional<double> squared_samples = {};
};

/// Converts step times to rates per device.
class ThroughputMeter {
 public:
  ThroughputMeter() = default;
  /// `peak_flops_per_second` is the peak of one device, if known. `world_size` devices share the
  /// work.
  ThroughputMeter(SampleFlops flops, std::optional<double> peak_flops_per_second,
                  double world_size = 1)
      : flops_(flops), peak_(peak_flops_per_second), world_size_(world_size) {}

  /// Returns the rates of `work`; zeros when `work.seconds` is 0.
  ThroughputMetrics rates(const TrainedWork& work) const;

 private:
  SampleFlops flops_;
  std::optional<double> peak_;
  double world_size_ = 1;
};

}  // namespace megatron
