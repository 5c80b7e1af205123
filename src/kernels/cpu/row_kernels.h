// The row operations on the processor. Each instruction set has its table; `row_kernels()` picks at run time. Sums use sixteen fixed lanes,
// so results do not depend on the instruction set.
#pragma once

#include "kernels/row_operations.h"

namespace megatron::kernels {

/// Every function works on a range [begin, end) of rows (dropout, norms), columns (the weight's gradient) or tokens (rotary), so that callers
/// can share the work among threads.
struct RowKernels {
  void (*dropout)(const DropoutArguments&, std::int64_t begin, std::int64_t end);
  void (*rms_norm)(const RmsNormArguments&, std::int64_t begin, std::int64_t end);
  void (*rms_norm_backward_input)(const RmsNormBackwardArguments&, std::int64_t begin, std::int64_t end);
  void (*rms_norm_backward_weight)(const RmsNormBackwardArguments&, std::int64_t begin, std::int64_t end);
  void (*rotary)(const RotaryArguments&, std::int64_t begin, std::int64_t end);
};

/// The table for this processor.
const RowKernels& row_kernels();

}  // namespace megatron::kernels
