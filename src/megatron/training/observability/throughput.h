// Rates of training: tokens and model FLOP/s, and their share of what the device can do (MFU) in
// both conventions.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/metrics/step_metrics.h"
#include "megatron/models/model_cost.h"

namespace megatron {

/// Model FLOPs of one sample, forward and backward.
struct SampleFlops {
  double causal = 0;  ///< Megatron-LM's count: masked half of attention left out
  double full =
      0;  ///< PaLM's (arXiv 2204.02311, appendix B): 6N + 12·L·H·Q·T a token, every score counted
};

SampleFlops sample_flops(const ModelDimensions& dimensions, std::int64_t sequence_length);

/// What was trained on in some time.
struct TrainedWork {
  double samples = 0, tokens = 0, seconds = 0;
};

/// Turns times of steps into rates per device.
class ThroughputMeter {
 public:
  ThroughputMeter() = default;
  /// `peak_flops_per_second` of one device, if known; `world_size` devices share the work.
  ThroughputMeter(SampleFlops flops, std::optional<double> peak_flops_per_second,
                  double world_size = 1)
      : flops_(flops), peak_(peak_flops_per_second), world_size_(world_size) {}

  /// Zeros for no time.
  ThroughputMetrics rates(const TrainedWork& work) const;

 private:
  SampleFlops flops_;
  std::optional<double> peak_;
  double world_size_ = 1;
};

}  // namespace megatron
