// Our own GEMMs on the CPU (kernels/cpu/gemm.h) for tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// out (+)= a·b + bias for a [m, k] and b [k, n] in float32, bfloat16 or float16 on the CPU, any
/// strides, bias [n] of their dtype or undefined; out [m, n] in their dtype or float32, its rows
/// contiguous. A row's bits do not depend on the others, nor on the number of threads.
void cpu_gemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              bool accumulate);

}  // namespace megatron
