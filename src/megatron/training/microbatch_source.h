// Where the loop gets its work: an endless row of microbatches in sample order.
#pragma once

#include "megatron/transformer/microbatch.h"

namespace megatron {

class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  /// The next microbatch; its sample_ordinals are the caller's business. UserError when the data has ended or is broken.
  virtual Microbatch next() = 0;
};

}  // namespace megatron
