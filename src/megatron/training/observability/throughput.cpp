#include "megatron/training/observability/throughput.h"

namespace megatron {

SampleFlops sample_flops(const ModelDimensions& dimensions, std::int64_t sequence_length) {
  const double tokens = static_cast<double>(sequence_length);
  // The formula is linear in Σ s² and counts half of it. Doubling the squared token count therefore
  // gives full attention.
  return {.causal = num_floating_point_operations(dimensions, tokens, tokens * tokens),
          .full = num_floating_point_operations(dimensions, tokens, 2 * tokens * tokens)};
}

ThroughputMetrics ThroughputMeter::rates(const TrainedWork& work) const {
  if (work.seconds <= 0) return {};
  const double samples_per_device_second = work.samples / (work.seconds * world_size_);
  ThroughputMetrics metrics{.tokens_per_second = work.tokens / work.seconds,
                            .flops_per_second = flops_.causal * samples_per_device_second};
  if (!peak_) return metrics;
  metrics.mfu = flops_.full * samples_per_device_second / *peak_;
  metrics.mfu_causal = flops_.causal * samples_per_device_second / *peak_;
  return metrics;
}

}  // namespace megatron
