// GEMMs through LibTorch's libraries: MKL and oneDNN on the CPU, cuBLAS on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Computes out = a·b, or out += a·b with `accumulate`. `out` is [m, n] in the operands' dtype or
/// float32.
void aten_matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// Returns a·b + bias in the operands' dtype. `bias` may be undefined.
at::Tensor aten_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

}  // namespace megatron
