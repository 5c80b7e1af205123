// Gather and sums of rows, compiled once for each instruction set.
#include "kernels/cpu/row_sums.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Columns that are summed at a time, so that all partial sums stay in the L1 cache.
inline constexpr std::int64_t kColumns = 64;

inline void gather_rows(const GatherRowsArguments& a, std::int64_t begin, std::int64_t end) {
  const auto bytes = static_cast<std::size_t>(a.bytes);
  for (std::int64_t i = begin; i < end; ++i) {
    char* to = static_cast<char*>(a.out) + i * a.bytes;
    if (a.source[i] < 0) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, static_cast<const char*>(a.in) + a.source[i] * a.bytes, bytes);
    }
  }
}

template <class T>
void sum_rows_of(const SumRowsArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<T>;
  alignas(64) C sums[kMostPartialSums][kColumns];
  const T* in = static_cast<const T*>(a.in);
  for (std::int64_t t = begin; t < end; ++t) {
    T* out = static_cast<T*>(a.out) + t * a.columns;
    const std::int32_t first = a.offsets[t], last = a.offsets[t + 1];
    if (last - first < 2) {
      if (first == last) {
        std::memset(out, 0, static_cast<std::size_t>(a.columns) * sizeof(T));
      } else {
        std::memcpy(out, in + a.rows[first] * a.columns,
                    static_cast<std::size_t>(a.columns) * sizeof(T));
      }
      continue;
    }
    for (std::int64_t column = 0; column < a.columns; column += kColumns) {
      const std::int64_t count = std::min(kColumns, a.columns - column);
      int top = 0;
      for (std::int32_t j = first; j < last; ++j, ++top) {
        const T* row = in + a.rows[j] * a.columns + column;
        if (a.folds[j] == 0) {
#pragma omp simd
          for (std::int64_t c = 0; c < count; ++c) sums[top][c] = load(row[c]);
          continue;
        }
        // The first fold adds the row without storing it first.
        --top;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) sums[top][c] += load(row[c]);
        for (int fold = 1; fold < a.folds[j]; ++fold) {
          --top;
#pragma omp simd
          for (std::int64_t c = 0; c < count; ++c) sums[top][c] += sums[top + 1][c];
        }
      }
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) store(out[column + c], sums[0][c]);
    }
  }
}

inline void sum_rows(const SumRowsArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.type, [&]<class T>(T) { sum_rows_of<T>(a, begin, end); });
}

RowSumKernels row_sum_kernels() { return {gather_rows, sum_rows}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(RowSumKernels, row_sum_kernels)
