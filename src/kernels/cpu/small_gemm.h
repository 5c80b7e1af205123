// GEMMs of matrices that are in the L1 and L2 caches, in the type that they are stored in, and what
// lies between them. Every instruction set gives the same bits: a result adds its terms one after
// another, whatever the sizes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/vectors.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// c [m, n] = or += a·b for a [m, k] and b [k, n]. Element (i, j) of `a` is at i·a_row +
/// j·a_column; the rows of b and c are contiguous, and n is a multiple of 16.
template <class C>
struct SmallGemm {
  std::int64_t m, n, k;
  const C* a;
  std::int64_t a_row, a_column;
  const C* b;
  std::int64_t b_row;
  C* c;
  std::int64_t c_row;
  bool accumulates = false;
};

template <int kRows, int kColumns, class C>
inline void gemm_tile(const SmallGemm<C>& g, const C* a, const C* b, C* c) {
  using V = Vectors<C>;
  typename V::V sums[kRows][kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
      sums[i][j] = g.accumulates ? V::load(c + i * g.c_row + j * kLanesOf<C>) : V::splat(0);
  }
  for (std::int64_t k = 0; k < g.k; ++k) {
    typename V::V row[kColumns];
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) row[j] = V::load(b + k * g.b_row + j * kLanesOf<C>);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto factor = V::splat(a[i * g.a_row + k * g.a_column]);
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) sums[i][j] = multiply_add(factor, row[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) V::store(c + i * g.c_row + j * kLanesOf<C>, sums[i][j]);
  }
}

/// Computes all rows of some columns in tiles of kRows, and those that remain in smaller ones.
template <int kRows, int kColumns, class C>
inline void gemm_columns(const SmallGemm<C>& g, std::int64_t column, std::int64_t row) {
  for (; row + kRows <= g.m; row += kRows)
    gemm_tile<kRows, kColumns>(g, g.a + row * g.a_row, g.b + column, g.c + row * g.c_row + column);
  if constexpr (kRows > 1) gemm_columns<kRows == 6 ? 4 : kRows / 2, kColumns>(g, column, row);
}

template <class C>
inline void small_gemm(const SmallGemm<C>& g) {
#if defined(__AVX512F__)
  constexpr int kRows = 8, kColumns = 2;
#else
  constexpr int kRows = 6, kColumns = sizeof(C) == 8 ? 4 : 1;
#endif
  constexpr std::int64_t kWidth = kColumns * kLanesOf<C>;
  std::int64_t column = 0;
  for (; column + kWidth <= g.n; column += kWidth) gemm_columns<kRows, kColumns>(g, column, 0);
  for (; column < g.n; column += kLanesOf<C>) gemm_columns<kRows, 1>(g, column, 0);
}

/// to [columns, rows] = from [rows, columns]ᵀ, in squares that fit into cache lines.
template <class C>
inline void transpose(const C* from, std::int64_t rows, std::int64_t columns, std::int64_t from_row,
                      C* to, std::int64_t to_row) {
  constexpr std::int64_t kSide = 16;
  for (std::int64_t i = 0; i < rows; i += kSide) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t end = std::min(rows, i + kSide);
      for (std::int64_t r = i; r < end; ++r) to[j * to_row + r] = from[r * from_row + j];
    }
  }
}

/// x[i] = exp(x[i]) for a count that is a multiple of 16.
inline void exponentials(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kNumLanes)
    store_vec(x + i, exponential(load_vec(x + i)));
}
inline void exponentials(double* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = std::exp(x[i]);
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
