// Error feedback of bfloat16 gradients: what rounding the sum of microbatches to bfloat16 lost is
// kept in a byte beside each element and added again with the next contribution. Together they hold
// the 24 leading bits of a float32, of which 16 are significant digits of the sum.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace megatron {

/// Adds a contribution to `grad`, a contiguous bfloat16 tensor, and keeps the new error in `error`,
/// int8 of the same number of elements. `write(sum, fresh)` gets the sum in float32, which it
/// overwrites when `fresh`. Uses memory for a float32 copy of `grad`.
void add_with_error_feedback(at::Tensor& grad, at::Tensor& error, bool fresh,
                             const std::function<void(at::Tensor& grad, bool fresh)>& write);

}  // namespace megatron
