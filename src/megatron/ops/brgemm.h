// Products of 16-bit matrices that accumulate in float32 memory, on a CPU with instructions for
// them.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// out = a·b, or out += a·b, for a [m, k], b [k, n] in bfloat16 or float16 and out [m, n] in
/// float32 with contiguous rows, all on the CPU. False, and nothing is done, where no such kernel
/// is at hand (shape, library or processor).
bool brgemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

}  // namespace megatron
