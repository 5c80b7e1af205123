// The random kernels, compiled once for each instruction set. Logarithm, sine and cosine follow
// FreeBSD's msun (e_log.c, k_sin.c, k_cos.c: errors below one unit in the last place of double),
// but have no branches. Their arguments are limited to those that a draw can have.
#include "kernels/cpu/random_kernels.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/philox_vector.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Returns ln x for 2⁻³⁴ < x < 1.
inline double log_of(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  // x = 2^k · m with m in [√½, √2).
  const std::uint64_t shifted = bits - 0x3fe6a09e667f3bcdu;
  const double k =
      static_cast<double>(static_cast<std::int32_t>(static_cast<std::int64_t>(shifted) >> 52));
  const std::uint64_t mantissa = (shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu;
  double m;
  std::memcpy(&m, &mantissa, sizeof m);
  const double f = m - 1, s = f / (2 + f), z = s * s, w = z * z;
  const double even =
      w * __builtin_fma(w, __builtin_fma(w, 1.531383769920937332e-01, 2.222219843214978396e-01),
                        3.999999999940941908e-01);
  const double odd =
      z * __builtin_fma(
              w,
              __builtin_fma(w, __builtin_fma(w, 1.479819860511658591e-01, 1.818357216161805012e-01),
                            2.857142874366239149e-01),
              6.666666666666735130e-01);
  const double half_square = 0.5 * f * f;
  return __builtin_fma(
      k, 6.93147180369123816490e-01,
      -((half_square - __builtin_fma(s, half_square + even + odd, k * 1.90821492927058770002e-10)) -
        f));
}

struct SineCosine {
  double sine, cosine;
};

/// Returns sin x and cos x for 0 <= x < 2π.
inline SineCosine sine_cosine(double x) {
  constexpr double kShift = 0x1.8p52;
  const double shifted = __builtin_fma(x, 6.36619772367581382433e-01, kShift);
  const double quarters = shifted - kShift;
  std::uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  double r = __builtin_fma(quarters, -0x1.921fb54442d18p+0, x);  // π/2 in two parts
  r = __builtin_fma(quarters, -0x1.1a62633145c07p-54, r);
  const double z = r * r;
  double p = __builtin_fma(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08);
  p = __builtin_fma(z, p, 2.75573137070700676789e-06);
  p = __builtin_fma(z, p, -1.98412698298579493134e-04);
  p = __builtin_fma(z, p, 8.33333333332248946124e-03);
  p = __builtin_fma(z, p, -1.66666666666666324348e-01);
  const double sine = __builtin_fma(z * r, p, r);
  double q = __builtin_fma(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09);
  q = __builtin_fma(z, q, -2.75573143513906633035e-07);
  q = __builtin_fma(z, q, 2.48015872894767294178e-05);
  q = __builtin_fma(z, q, -1.38888888888741095749e-03);
  q = __builtin_fma(z, q, 4.16666666666666019037e-02);
  const double half = 0.5 * z, rest = 1 - half;
  const double cosine = rest + (((1 - rest) - half) + z * z * q);
  const bool swaps = (bits & 1) != 0, negates_sine = (bits & 2) != 0,
             negates_cosine = ((bits + 1) & 2) != 0;
  const double s = swaps ? cosine : sine, c = swaps ? sine : cosine;
  return {negates_sine ? -s : s, negates_cosine ? -c : c};
}

/// Returns whether a double that differs by some units in the last place could round to another
/// float. It can if x is within 32 units of the middle of two floats, or too small for a normal
/// float.
inline bool needs_exact_rounding(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const std::uint64_t low = bits & 0x1fffffffu;
  return low - 0x0fffffe0u <= 64 || (bits & 0x7fffffffffffffffu) < 0x3810000000000000u;
}

inline double uniform_of(std::uint32_t draw) { return (static_cast<double>(draw) + 0.5) * 0x1p-32; }

constexpr int kGroup = 4 * kLanes;  ///< elements of one call of draw_blocks

/// Computes elements [64·group, 64·group + 64). Returns whether one of them needs exact rounding.
inline bool normals_of_group(double std, std::uint64_t key, std::int64_t group, double* out) {
  std::uint32_t draws[kGroup];
  draw_blocks(key, static_cast<std::uint64_t>(group) * kLanes, 0, draws);
  double radius[kGroup / 2], angle[kGroup / 2];
#pragma omp simd
  for (int pair = 0; pair < kGroup / 2; ++pair) {
    radius[pair] = std * std::sqrt(-2 * log_of(uniform_of(draws[2 * pair])));
    angle[pair] = 2 * 3.141592653589793238462643 * uniform_of(draws[2 * pair + 1]);
  }
  int num_inexact = 0;
#pragma omp simd reduction(+ : num_inexact)
  for (int pair = 0; pair < kGroup / 2; ++pair) {
    const SineCosine turn = sine_cosine(angle[pair]);
    const double first = radius[pair] * turn.cosine, second = radius[pair] * turn.sine;
    out[2 * pair] = first;
    out[2 * pair + 1] = second;
    num_inexact += needs_exact_rounding(first) + needs_exact_rounding(second);
  }
  return num_inexact > 0;
}

inline void normals(double std, std::uint64_t key, std::int64_t first, std::int64_t count,
                    float* out, double (*exact)(double, std::uint64_t, std::int64_t)) {
  double values[kGroup];
  for (std::int64_t group = first / kGroup; group * kGroup < first + count; ++group) {
    const std::int64_t start = group * kGroup;
    if (normals_of_group(std, key, group, values)) {
      for (int i = 0; i < kGroup; ++i) {
        if (needs_exact_rounding(values[i])) values[i] = exact(std, key, start + i);
      }
    }
    const std::int64_t begin = first > start ? first - start : 0,
                       end = first + count < start + kGroup ? first + count - start : kGroup;
    float* const to = out + (start - first);
    for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(values[i]);
  }
}

RandomKernels random_kernels() { return {normals}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(RandomKernels, random_kernels)
