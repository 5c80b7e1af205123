// The AVX2 micro-kernel: a tile of 6 rows by 16 columns stays in 256-bit registers, so a panel is
// processed in two halves.
#include <immintrin.h>

#include "kernels/cpu/gemm_packing.h"
#include "kernels/cpu/micro_kernel_variants.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {
namespace {

constexpr std::int64_t kRows = 6, kColumns = 16;

/// Returns a mask whose lanes [0, count) are set.
__m256i lanes_below(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

template <int kCount>
inline __attribute__((always_inline)) void multiply_rows(const MicroKernelArguments& p,
                                                         const float* a, const float* panel,
                                                         std::int64_t columns, float* out) {
  const bool streams = p.streams_panel && out == p.out;
  __m256 sums[kCount][2];
#pragma GCC unroll 6
  for (int r = 0; r < kCount; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
  for (std::int64_t s = 0; s < p.steps; ++s, panel += kPanelColumns, a += p.step_stride) {
    if (streams) {
      _mm_prefetch(reinterpret_cast<const char*>(panel) + kPanelAhead, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(panel) + kPanelAhead + 64, _MM_HINT_T0);
    }
    const __m256 b0 = _mm256_loadu_ps(panel), b1 = _mm256_loadu_ps(panel + 8);
#pragma GCC unroll 6
    for (int r = 0; r < kCount; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + r * p.row_stride);
      sums[r][0] = _mm256_fmadd_ps(x, b0, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(x, b1, sums[r][1]);
    }
  }
  const __m256i low = lanes_below(columns), high = lanes_below(columns - 8);
#pragma GCC unroll 6
  for (int r = 0; r < kCount; ++r, out += p.out_stride) {
    if (p.accumulate) {
      sums[r][0] = _mm256_add_ps(_mm256_maskload_ps(out, low), sums[r][0]);
      sums[r][1] = _mm256_add_ps(_mm256_maskload_ps(out + 8, high), sums[r][1]);
    }
    _mm256_maskstore_ps(out, low, sums[r][0]);
    _mm256_maskstore_ps(out + 8, high, sums[r][1]);
  }
}

void multiply_remainder(const MicroKernelArguments& p, std::int64_t rows, const float* a,
                        const float* panel, std::int64_t columns, float* out) {
  switch (rows) {
    case 1:
      return multiply_rows<1>(p, a, panel, columns, out);
    case 2:
      return multiply_rows<2>(p, a, panel, columns, out);
    case 3:
      return multiply_rows<3>(p, a, panel, columns, out);
    case 4:
      return multiply_rows<4>(p, a, panel, columns, out);
    case 5:
      return multiply_rows<5>(p, a, panel, columns, out);
    default:
      return multiply_rows<6>(p, a, panel, columns, out);
  }
}

void multiply(const MicroKernelArguments& p) {
  for (std::int64_t row = 0; row < p.rows; row += kRows) {
    const auto* a = static_cast<const float*>(p.a) + row * p.row_stride;
    for (std::int64_t column = 0; column < p.columns; column += kColumns)
      multiply_remainder(
          p, std::min(kRows, p.rows - row), a, static_cast<const float*>(p.panel) + column,
          std::min(kColumns, p.columns - column), p.out + row * p.out_stride + column);
  }
}

}  // namespace

MicroKernel f32_micro_kernel() {
  return {.type = Type::f32, .pack = pack_to_f32, .copy = copy_lines_to_f32, .multiply = multiply};
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
