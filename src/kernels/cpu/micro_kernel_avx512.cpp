// The AVX-512 micro-kernel: a tile of up to 12 rows by 32 columns stays in 24 of the 512-bit
// registers. It is compiled for AVX-512 with f32 operands, and for AVX512-BF16 with pairs of bf16.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/gemm_packing.h"
#include "kernels/cpu/micro_kernel.h"
#include "kernels/cpu/micro_kernel_variants.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

template <int kRows>
inline __attribute__((always_inline)) void store_full(const MicroKernelArguments& p,
                                                      __m512 (&sums)[kRows][2], float* out) {
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r, out += p.out_stride) {
    if (p.accumulate) {
      sums[r][0] = _mm512_add_ps(_mm512_loadu_ps(out), sums[r][0]);
      sums[r][1] = _mm512_add_ps(_mm512_loadu_ps(out + 16), sums[r][1]);
    }
    _mm512_storeu_ps(out, sums[r][0]);
    _mm512_storeu_ps(out + 16, sums[r][1]);
  }
}

/// Stores a tile with fewer columns than a panel has.
template <int kRows>
inline __attribute__((always_inline)) void store_partial(const MicroKernelArguments& p,
                                                         __m512 (&sums)[kRows][2], float* out) {
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << p.columns) - 1);
  const auto low = static_cast<__mmask16>(mask), high = static_cast<__mmask16>(mask >> 16);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r, out += p.out_stride) {
    if (p.accumulate) {
      sums[r][0] = _mm512_add_ps(_mm512_maskz_loadu_ps(low, out), sums[r][0]);
      sums[r][1] = _mm512_add_ps(_mm512_maskz_loadu_ps(high, out + 16), sums[r][1]);
    }
    _mm512_mask_storeu_ps(out, low, sums[r][0]);
    _mm512_mask_storeu_ps(out + 16, high, sums[r][1]);
  }
}

/// GEMMs with less depth, such as those of attention, write to memory that is in the L1 cache.
constexpr std::int64_t kMinStepsToPrefetchOut = 128;

/// `Steps::add(sums, x, b)` adds the products of one step. Every lane of x holds the same step of
/// a.
template <class Steps, int kRows>
inline __attribute__((always_inline)) void multiply_rows(const MicroKernelArguments& p,
                                                         const char* a, float* out) {
  const std::int64_t row_bytes = 4 * p.row_stride, step_bytes = 4 * p.step_stride;
  // Each address serves three rows, because registers cannot hold twelve addresses.
  const char* groups[(kRows + 2) / 3];
  for (int g = 0; g < (kRows + 2) / 3; ++g) groups[g] = a + 3 * g * row_bytes;
  const auto* panel = static_cast<const float*>(p.panel);
  __m512 sums[kRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  for (int r = 0; p.steps >= kMinStepsToPrefetchOut && r < kRows; ++r) {
    _mm_prefetch(reinterpret_cast<const char*>(out + r * p.out_stride), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(out + r * p.out_stride + kPanelColumns - 1),
                 _MM_HINT_T0);
  }
  for (std::int64_t s = 0; s < p.steps; ++s, panel += kPanelColumns) {
    const __m512 b0 = _mm512_loadu_ps(panel), b1 = _mm512_loadu_ps(panel + 16);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 x =
          _mm512_set1_ps(*reinterpret_cast<const float*>(groups[r / 3] + r % 3 * row_bytes));
      sums[r][0] = Steps::add(sums[r][0], x, b0);
      sums[r][1] = Steps::add(sums[r][1], x, b1);
    }
#pragma GCC unroll 4
    for (int g = 0; g < (kRows + 2) / 3; ++g) groups[g] += step_bytes;
  }
  p.columns == kPanelColumns ? store_full<kRows>(p, sums, out) : store_partial<kRows>(p, sums, out);
}

template <class Steps>
void multiply_remainder(const MicroKernelArguments& p, std::int64_t rows, const char* a,
                        float* out) {
  switch (rows) {
    case 1:
      return multiply_rows<Steps, 1>(p, a, out);
    case 2:
      return multiply_rows<Steps, 2>(p, a, out);
    case 3:
      return multiply_rows<Steps, 3>(p, a, out);
    case 4:
      return multiply_rows<Steps, 4>(p, a, out);
    case 5:
      return multiply_rows<Steps, 5>(p, a, out);
    case 6:
      return multiply_rows<Steps, 6>(p, a, out);
    case 7:
      return multiply_rows<Steps, 7>(p, a, out);
    case 8:
      return multiply_rows<Steps, 8>(p, a, out);
    case 9:
      return multiply_rows<Steps, 9>(p, a, out);
    case 10:
      return multiply_rows<Steps, 10>(p, a, out);
    case 11:
      return multiply_rows<Steps, 11>(p, a, out);
    default:
      return multiply_rows<Steps, 12>(p, a, out);
  }
}

template <class Steps>
void multiply(const MicroKernelArguments& p) {
  const auto* a = static_cast<const char*>(p.a);
  float* out = p.out;
  std::int64_t left = p.rows;
  for (; left >= kPanelRows;
       left -= kPanelRows, a += 4 * kPanelRows * p.row_stride, out += kPanelRows * p.out_stride)
    multiply_rows<Steps, kPanelRows>(p, a, out);
  if (left > 0) multiply_remainder<Steps>(p, left, a, out);
}

#if defined(__AVX512BF16__)

namespace {
struct Bf16DotProduct {
  static __m512 add(__m512 sum, __m512 x, __m512 b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(b));
  }
};
}  // namespace

MicroKernel bf16_micro_kernel() {
  return {.type = Type::bf16,
          .pack = pack_pairs,
          .copy = copy_pairs,
          .multiply = multiply<Bf16DotProduct>};
}

#else

namespace {
struct FusedMultiplyAdd {
  static __m512 add(__m512 sum, __m512 x, __m512 b) { return _mm512_fmadd_ps(x, b, sum); }
};
}  // namespace

MicroKernel f32_micro_kernel() {
  return {.type = Type::f32,
          .pack = pack_to_f32,
          .copy = copy_lines_to_f32,
          .multiply = multiply<FusedMultiplyAdd>};
}

#endif

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
