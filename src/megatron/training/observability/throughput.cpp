#include "megatron/training/observability/throughput.h"

namespace megatron {

ThroughputMetrics ThroughputMeter::rates(const TrainedWork& work) const {
  if (work.seconds <= 0) return {};
  const double device_seconds = work.seconds * world_size_, scores = flops_.full - flops_.causal,
               // What scores lack where padding is left out, beyond what all other work lacks.
      missing = scores * (work.samples - work.squared_samples.value_or(work.samples)),
               causal = (flops_.causal * work.samples - missing) / device_seconds;
  ThroughputMetrics metrics{.tokens_per_second = work.tokens / work.seconds,
                            .flops_per_second = causal};
  if (!peak_) return metrics;
  metrics.mfu = (flops_.full * work.samples - 2 * missing) / device_seconds / *peak_;
  metrics.mfu_causal = causal / *peak_;
  return metrics;
}

}  // namespace megatron
