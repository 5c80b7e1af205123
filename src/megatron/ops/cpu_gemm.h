// Calls our own CPU GEMM kernels (kernels/cpu/gemm.h) with tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Computes out = a·b + bias, or out += a·b + bias with `accumulate`, on the CPU. `a` is [m, k] and
/// `b` is [k, n] in float32, bfloat16 or float16, with any strides. `bias` is [n] in the same
/// dtype, or undefined. `out` is [m, n] in the same dtype or float32, with contiguous rows. The
/// bits of a row depend neither on the other rows nor on the number of threads. The first
/// `packed_columns` of b, the transpose of a contiguous weight, are packed by cpu_pack_weight().
void cpu_gemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              bool accumulate, std::int64_t packed_columns = 0);

/// Computes one GEMM per group of rows on the CPU, all groups at once: multiplies the rows of group
/// e of `a` [T, k] by b[e], where `b` is [E, k, n], and adds bias[e], where `bias` is [E, n] or
/// undefined. `rows` holds the number of rows of each group. `out` is [T, n] and contiguous. Types
/// and bits are those of cpu_gemm(), and so are the packed columns of each b[e].
void cpu_grouped_gemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                      at::IntArrayRef rows, const at::Tensor& bias,
                      std::int64_t packed_columns = 0);

/// Packs a contiguous weight [n, k], or each of [E, n, k], in place for the GEMMs of this CPU.
/// Returns how many of its first rows, the columns of b, are packed; the others stay as they are.
std::int64_t cpu_pack_weight(const at::Tensor& weight);

/// Computes out[e] = a_eᵀ·b_e, or out[e] += a_eᵀ·b_e with `accumulate`, where a_e and b_e are the
/// rows of group e of `a` [T, m] and `b` [T, n]. `out` is [E, m, n] and contiguous. The product of
/// a group without rows is zero.
void cpu_grouped_gemm_over_rows(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                at::IntArrayRef rows, bool accumulate);

}  // namespace megatron
