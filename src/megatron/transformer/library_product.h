// Matrix products of LibTorch's libraries (MKL, oneDNN, cuBLAS).
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Whether the library has products of this dtype on the processor, with sums in float32, that are worth a comparison with ours: float32, and 16 bits
/// where the processor multiplies them itself.
bool library_multiplies(c10::ScalarType type);

/// out = a·b, or out += a·b; out [m, n] in the operands' dtype or float32. Products from 16 bits into float32 on the processor are those of
/// block_product.h.
void library_product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// a·b + bias (or undefined) in the operands' dtype.
at::Tensor library_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

}  // namespace megatron
