// Grouped GEMMs: one GEMM per group of rows, as the experts of a mixture need them (grouped GEMM of
// CUTLASS, torch._grouped_mm, jax.lax.ragged_dot). All groups run at once.
//
// `rows` holds the number of rows of each group, in host memory. Groups follow each other and may
// be empty. Types are those of matmul(); the bits of a row do not depend on the other rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// Multiplies the rows of group e of `a` [T, k] by b[e], where `b` is [E, k, n] with any strides,
/// and adds bias[e] when `bias` [E, n] is defined. Returns [T, n] in dtype `type`.
at::Tensor grouped_matmul(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef rows,
                          c10::ScalarType type, const at::Tensor& bias = {});

/// Computes out[e] = a_eᵀ·b_e, or out[e] += a_eᵀ·b_e with `accumulate`, from the rows of group e of
/// `a` [T, m] and `b` [T, n]: the weight gradient of grouped_matmul(). `out` is contiguous
/// [E, m, n], in the operands' dtype or float32. A group without rows contributes zero.
void grouped_matmul_over_rows_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                  at::IntArrayRef rows, bool accumulate);

}  // namespace megatron
