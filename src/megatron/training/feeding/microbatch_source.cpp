#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

std::vector<Microbatch> next_step(MicrobatchSource& source, std::int64_t num_microbatches) {
  std::vector<Microbatch> step;
  std::int64_t count = num_microbatches;
  for (std::int64_t i = 0; i < count; ++i) {
    step.push_back(source.next());
    if (const HybridContext* hybrid = step.back().hybrid()) count = hybrid->step.num_microbatches;
  }
  return step;
}

}  // namespace megatron
