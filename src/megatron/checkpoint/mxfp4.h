// Reads weights in MXFP4 (OCP Microscaling Formats 1.0): 32 numbers of 4 bits share a scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// The numbers that share a scale.
inline constexpr std::int64_t kMxfp4Block = 32;

/// Returns the numbers in bfloat16, [..., columns], which are exact unless they overflow. `packed`
/// [..., columns / 2] has two numbers (E2M1) in a byte, the first in the low bits; `scales` [...,
/// columns / 32] has exponents (E8M0). Both are uint8.
at::Tensor dequantized_mxfp4(const at::Tensor& packed, const at::Tensor& scales);

}  // namespace megatron
