// Interface from which the training loop takes its microbatches: an endless sequence in sample
// order.
#pragma once

#include <vector>

#include "megatron/nn/microbatch.h"

namespace megatron {

class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  /// Returns the next microbatch. Its sample_ordinals, where defined, are indices into the samples
  /// that all data-parallel ranks take in this step; the caller adds the ordinal of the first one.
  /// UserError when the data has ended or is damaged.
  virtual Microbatch next() = 0;
};

/// Returns the microbatches of the next step: `num_microbatches`, or with hybrid context
/// parallelism as many as the step has.
inline std::vector<Microbatch> next_step(MicrobatchSource& source, std::int64_t num_microbatches) {
  std::vector<Microbatch> step;
  for (std::int64_t i = 0; i < num_microbatches; ++i) {
    step.push_back(source.next());
    if (const auto* hybrid = step.back().hybrid()) num_microbatches = hybrid->step.num_microbatches;
  }
  return step;
}

}  // namespace megatron
