// The AVX-512 micro-kernel: a tile of up to 12 rows by 32 columns stays in 24 of the 512-bit
// registers. The last 16 columns are left out where a panel has no more. It is compiled for AVX-512
// with f32 operands, and for AVX512-BF16 with pairs of bf16.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/gemm_packing.h"
#include "kernels/cpu/micro_kernel.h"
#include "kernels/cpu/micro_kernel_variants.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

template <int kRows, int kVectors>
inline __attribute__((always_inline)) void store_full(const MicroKernelArguments& p,
                                                      __m512 (&sums)[kRows][kVectors], float* out) {
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r, out += p.out_stride) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      if (p.accumulate) sums[r][v] = _mm512_add_ps(_mm512_loadu_ps(out + 16 * v), sums[r][v]);
      _mm512_storeu_ps(out + 16 * v, sums[r][v]);
    }
  }
}

/// Stores a tile with fewer than 16 · kVectors columns.
template <int kRows, int kVectors>
inline __attribute__((always_inline)) void store_partial(const MicroKernelArguments& p,
                                                         __m512 (&sums)[kRows][kVectors],
                                                         float* out) {
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << p.columns) - 1);
  const __mmask16 masks[2] = {static_cast<__mmask16>(mask), static_cast<__mmask16>(mask >> 16)};
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r, out += p.out_stride) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      if (p.accumulate)
        sums[r][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(masks[v], out + 16 * v), sums[r][v]);
      _mm512_mask_storeu_ps(out + 16 * v, masks[v], sums[r][v]);
    }
  }
}

/// The upcoming lines of a tile, in registers.
class LinesOfTile {
 public:
  explicit LinesOfTile(const MicroKernelArguments& p)
      : source_(*p.upcoming), line_(source_.line), left_(source_.left) {}
  __attribute__((always_inline)) void prefetch() {
    _mm_prefetch(line_, _MM_HINT_T1);
    line_ += step_;
    if (--left_ == 0) next_run();
  }
  void write_back() const {
    source_.line = line_;
    source_.left = left_;
  }

 private:
  void next_run() {
    line_ += source_.jump;
    left_ = source_.lines_each;
    if (--source_.runs > 0) return;
    line_ -= source_.jump + 64;  // stays at the last line
    left_ = std::int64_t{1} << 62;
    step_ = 0;
  }

  UpcomingLines& source_;
  const char* line_;
  std::int64_t left_, step_ = 64;
};

/// The lines after those of a panel that streams from memory, as many. They are prefetched as four
/// runs at once, because a core reads several pages faster than one.
class LinesOfPanel {
 public:
  explicit LinesOfPanel(const MicroKernelArguments& p)
      : line_(static_cast<const char*>(p.panel) + 4 * kPanelColumns * p.steps),
        run_(p.steps / 2 * 64),
        next_(2 * run_) {}
  __attribute__((always_inline)) void prefetch() {
    _mm_prefetch(line_, _MM_HINT_T1);
    _mm_prefetch(line_ + run_, _MM_HINT_T1);
    line_ += next_;
    next_ = 64 - next_;
  }
  void write_back() const {}

 private:
  const char* line_;
  std::int64_t run_, next_;  ///< lines of both halves of the runs take turns
};

/// A prefetch at each step costs an eighth of the time where nothing is upcoming.
struct NoLines {
  explicit NoLines(const MicroKernelArguments&) {}
  void prefetch() {}
  void write_back() const {}
};

/// `Steps::add(sums, x, b)` adds the products of one step. Every lane of x holds the same step of
/// a. The panel has at most 16 · kVectors columns.
template <class Steps, int kVectors, int kRows, class Lines>
inline __attribute__((always_inline)) void multiply_rows(const MicroKernelArguments& p,
                                                         const char* a, float* out) {
  const std::int64_t row_bytes = 4 * p.row_stride, step_bytes = 4 * p.step_stride;
  // Each address serves three rows, because registers cannot hold twelve addresses.
  const char* groups[(kRows + 2) / 3];
  for (int g = 0; g < (kRows + 2) / 3; ++g) groups[g] = a + 3 * g * row_bytes;
  const auto* panel = static_cast<const float*>(p.panel);
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  for (int r = 0; p.steps >= kMinStepsToPrefetchOut && r < kRows; ++r) {
    _mm_prefetch(reinterpret_cast<const char*>(out + r * p.out_stride), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(out + r * p.out_stride + kPanelColumns - 1),
                 _MM_HINT_T0);
  }
  Lines upcoming(p);
  for (std::int64_t s = 0; s < p.steps; ++s, panel += kPanelColumns) {
    upcoming.prefetch();
    __m512 b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) b[v] = _mm512_loadu_ps(panel + 16 * v);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 x =
          _mm512_set1_ps(*reinterpret_cast<const float*>(groups[r / 3] + r % 3 * row_bytes));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Steps::add(sums[r][v], x, b[v]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < (kRows + 2) / 3; ++g) groups[g] += step_bytes;
  }
  upcoming.write_back();
  p.columns == 16 * kVectors ? store_full<kRows, kVectors>(p, sums, out)
                             : store_partial<kRows, kVectors>(p, sums, out);
}

template <class Steps, int kVectors, class Lines>
void multiply_group(const MicroKernelArguments& p, std::int64_t rows, const char* a, float* out) {
  switch (rows) {
    case 1:
      return multiply_rows<Steps, kVectors, 1, Lines>(p, a, out);
    case 2:
      return multiply_rows<Steps, kVectors, 2, Lines>(p, a, out);
    case 3:
      return multiply_rows<Steps, kVectors, 3, Lines>(p, a, out);
    case 4:
      return multiply_rows<Steps, kVectors, 4, Lines>(p, a, out);
    case 5:
      return multiply_rows<Steps, kVectors, 5, Lines>(p, a, out);
    case 6:
      return multiply_rows<Steps, kVectors, 6, Lines>(p, a, out);
    case 7:
      return multiply_rows<Steps, kVectors, 7, Lines>(p, a, out);
    case 8:
      return multiply_rows<Steps, kVectors, 8, Lines>(p, a, out);
    case 9:
      return multiply_rows<Steps, kVectors, 9, Lines>(p, a, out);
    case 10:
      return multiply_rows<Steps, kVectors, 10, Lines>(p, a, out);
    case 11:
      return multiply_rows<Steps, kVectors, 11, Lines>(p, a, out);
    default:
      return multiply_rows<Steps, kVectors, 12, Lines>(p, a, out);
  }
}

template <class Steps, int kVectors>
void multiply_columns(const MicroKernelArguments& p) {
  const auto* a = static_cast<const char*>(p.a);
  float* out = p.out;
  std::int64_t left = p.rows;
  const auto has_lines = [&p] { return p.upcoming != nullptr && p.upcoming->runs > 0; };
  for (; left > 0;
       left -= kPanelRows, a += 4 * kPanelRows * p.row_stride, out += kPanelRows * p.out_stride) {
    if (p.streams_panel && left == p.rows) {
      multiply_group<Steps, kVectors, LinesOfPanel>(p, left, a, out);
    } else if (has_lines()) {
      multiply_group<Steps, kVectors, LinesOfTile>(p, left, a, out);
    } else {
      multiply_group<Steps, kVectors, NoLines>(p, left, a, out);
    }
  }
}

template <class Steps>
void multiply(const MicroKernelArguments& p) {
  p.columns <= 16 ? multiply_columns<Steps, 1>(p) : multiply_columns<Steps, 2>(p);
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
