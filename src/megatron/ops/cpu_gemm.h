// Calls our own CPU GEMM kernels (kernels/cpu/gemm.h) with tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Computes out = a·b + bias, or out += a·b + bias with `accumulate`, on the CPU. `a` is [m, k] and
/// `b` is [k, n] in float32, bfloat16 or float16, with any strides. `bias` is [n] in the same
/// dtype, or undefined. `out` is [m, n] in the same dtype or float32, with contiguous rows. The
/// bits of a row depend neither on the other rows nor on the number of threads.
void cpu_gemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              bool accumulate);

}  // namespace megatron
