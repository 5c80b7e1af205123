// GEMMs in every precision. 16-bit operands can produce a float32 result without an intermediate
// rounding.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Returns a·b + bias in dtype `type`. `a` is [m, k] and `b` is [k, n], of one dtype and with any
/// strides; `bias` is [n] or undefined. `type` is the operands' dtype, or float32 for 16-bit
/// operands. Sums accumulate in float32 (float64 for float64 operands) and are rounded once.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, c10::ScalarType type,
                  const at::Tensor& bias = {});

/// Throws InternalError unless `a` and `b` have one dtype and a GEMM of them may have results of
/// dtype `out`: their own, or float32 for 16-bit operands.
void check_gemm_types(const at::Tensor& a, const at::Tensor& b, c10::ScalarType out);

/// Computes out = a·b, or out += a·b with `accumulate`. `out` is [m, n] with contiguous rows, in
/// the operands' dtype or float32.
void matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

}  // namespace megatron
