// GEMMs in every precision. 16-bit operands can produce a float32 result without an intermediate
// rounding. On the CPU they run on our kernels (cpu_gemm.h) or the library's (aten_matmul.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace megatron {

/// Returns a·b + bias in dtype `type`. `a` is [m, k] and `b` is [k, n], of one dtype and with any
/// strides; `bias` is [n] or undefined. `type` is the operands' dtype, or float32 for 16-bit
/// operands. Sums accumulate in float32 (float64 for float64 operands) and are rounded once.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, c10::ScalarType type,
                  const at::Tensor& bias = {});

/// Computes out = a·b, or out += a·b with `accumulate`. `out` is [m, n] with contiguous rows, in
/// the operands' dtype or float32.
void matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate);

/// A weight W [n, k], or [E, n, k] of groups, which GEMMs multiply by as x·Wᵀ.
struct GemmWeight {
  at::Tensor value;
  /// So many first rows are packed (pack_gemm_weight()); others can be read.
  std::int64_t packed_rows = 0;
};

/// Returns whether pack_gemm_weight() packs a weight: on the CPU, in a type that our kernels
/// multiply.
bool can_pack(const at::Tensor& weight);

/// Packs a weight that can_pack() in place, for GEMMs that only read it. Few rows of x then stream
/// it from memory, and no GEMM has to pack it.
GemmWeight pack_gemm_weight(const at::Tensor& weight);

/// Returns a·Wᵀ + bias as matmul() does, with the same bits whether W is packed or not.
at::Tensor matmul(const at::Tensor& a, const GemmWeight& weight, c10::ScalarType type,
                  const at::Tensor& bias = {});
/// Computes out = a·Wᵀ.
void matmul_out(at::Tensor& out, const at::Tensor& a, const GemmWeight& weight);

// ---- Grouped GEMMs ----
//
// One GEMM per group of rows, as the experts of a mixture need them (grouped GEMM of CUTLASS,
// torch._grouped_mm, jax.lax.ragged_dot). All groups run at once. `rows` holds the number of rows
// of each group, in host memory. Groups follow each other and may be empty. Types are those of
// matmul(). In our kernels the bits of a row do not depend on the other rows. Where LibTorch's
// library runs the GEMMs (uses_own_gemm()), they may.

/// Multiplies the rows of group e of `a` [T, k] by b[e], where `b` is [E, k, n] with any strides,
/// and adds bias[e] when `bias` [E, n] is defined. Returns [T, n] in dtype `type`.
at::Tensor grouped_matmul(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef rows,
                          c10::ScalarType type, const at::Tensor& bias = {});

/// Returns the product of the rows of group e and W[e]ᵀ, with the same bits whether W is packed.
at::Tensor grouped_matmul(const at::Tensor& a, const GemmWeight& weight, at::IntArrayRef rows,
                          c10::ScalarType type, const at::Tensor& bias = {});

/// Computes out[e] = a_eᵀ·b_e, or out[e] += a_eᵀ·b_e with `accumulate`, from the rows of group e of
/// `a` [T, m] and `b` [T, n]: the weight gradient of grouped_matmul(). `out` is contiguous
/// [E, m, n], in the operands' dtype or float32. A group without rows contributes zero.
void grouped_matmul_over_rows_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                  at::IntArrayRef rows, bool accumulate);

/// Calls use(group, first row, rows[group]) for each group, the empty ones included.
template <class Use>
void for_each_group(c10::ArrayRef<std::int64_t> rows, const Use& use) {
  std::int64_t first = 0;
  for (std::size_t group = 0; group < rows.size(); first += rows[group++])
    use(static_cast<std::int64_t>(group), first, rows[group]);
}

/// Returns whether our kernels run a CPU GEMM of this dtype; false for types that they do not have.
/// The CPU's features decide, not a measurement: LibTorch's library runs float32 where there is no
/// AVX2, and float16 where there is AVX512-FP16. The bits of a row depend on its batch only there.
bool uses_own_gemm(c10::ScalarType type);

}  // namespace megatron
