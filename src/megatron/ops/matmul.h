// GEMMs in every precision: 16-bit operands may give float32 results without a rounding in between.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// a·b + bias for a [m, k], b [k, n] of one dtype and any strides and bias [n] (or undefined), in
/// dtype `type`: the operands', or float32 from 16 bits. Sums are kept in float32 (float64 with
/// float64) and rounded once.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, c10::ScalarType type,
                  const at::Tensor& bias = {});

/// out = a·b, or out += a·b with `accumulate`; out [m, n] (rows contiguous) in the operands' dtype
/// or float32.
void matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

}  // namespace megatron
