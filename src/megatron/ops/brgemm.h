// 16-bit GEMMs with float32 output, on CPUs that have instructions for them.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Computes out = a·b, or out += a·b with `accumulate`, on the CPU. `a` is [m, k] and `b` is [k, n]
/// in bfloat16 or float16; `out` is [m, n] in float32 with contiguous rows. Returns false, and
/// leaves `out` untouched, when no kernel supports the shape, the library or the CPU.
bool brgemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

}  // namespace megatron
