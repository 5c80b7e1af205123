// Where the loop gets its work: an endless row of microbatches in sample order.
#pragma once

#include "megatron/nn/microbatch.h"

namespace megatron {

class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  /// The next microbatch. Its sample_ordinals, where defined, are places among the samples that all
  /// data-parallel ranks take at this time; the caller adds where those begin. UserError when the
  /// data has ended or is broken.
  virtual Microbatch next() = 0;
};

}  // namespace megatron
