// GEMMs of LibTorch's libraries (MKL, oneDNN, cuBLAS).
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Whether the library has products of this dtype on the CPU, with sums in float32, that are worth
/// a comparison with ours: float32, and 16 bits where the CPU multiplies them itself.
bool aten_gemm_is_candidate(c10::ScalarType type);

/// out = a·b, or out += a·b; out [m, n] in the operands' dtype or float32. Products from 16 bits
/// into float32 on the CPU are those of brgemm.h.
void aten_matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// a·b + bias (or undefined) in the operands' dtype.
at::Tensor aten_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

}  // namespace megatron
