// The activations and their derivatives without branches, so that loops over them become vector code. f32 by polynomials, f64 by the C library.
// Included once per instruction set inside the namespace MEGATRON_KERNEL_ISA.
#pragma once

#include <cmath>

#include "kernels/cpu/vector_math.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr double kLog2E = 1.44269504088896340736;

/// 2^x for |x| ≤ 126, as exp2_f32, which looks at what lies outside.
inline float exp2_in_range(float x) {
  const float shifted = x + kRoundingShift, f = x - (shifted - kRoundingShift);
  float p = __builtin_fmaf(1.5345816e-4f, f, 1.3399931e-3f);
  p = __builtin_fmaf(p, f, 9.618489e-3f);
  p = __builtin_fmaf(p, f, 5.5503286e-2f);
  p = __builtin_fmaf(p, f, 2.4022646e-1f);
  p = __builtin_fmaf(p, f, 6.9314718e-1f);
  p = __builtin_fmaf(p, f, 1.0f);
  return float_of_bits(bits_of_float(p) + (bits_of_float(shifted) << 23));
}

/// 1 / (1 + 2⁻ˣ): the logistic function of x / log₂e.
inline float logistic2(float x) {
  const float low = x > 126.0f ? 126.0f : x;
  return 1.0f / (1.0f + exp2_in_range(-(low < -126.0f ? -126.0f : low)));
}

inline double logistic2(double x) { return 1 / (1 + std::exp2(-x)); }

/// Of the normal distribution with variance 1.
template <class C>
struct Normal {
  C below;    ///< Φ(x) = (1 + erf(x / √2)) / 2
  C density;  ///< φ(x) = e^(−x²/2) / √(2π)
};

/// Φ(−|x|) = e^(−x²/2)·r·P(r) with r = 1 / (1 + 0.265·|x|), after Hastings (Abramowitz & Stegun 26.2.17); P minimax in relative error (1e-8 for
/// |x| ≤ 13), so that the tail keeps its digits.
inline Normal<float> normal(float x) {
  const float magnitude = x < 0 ? -x : x, bounded = magnitude < 13.0f ? magnitude : 13.0f;
  const float e = exp2_in_range(bounded * bounded * -0.721347520f), r = 1.0f / __builtin_fmaf(bounded, 0.265f, 1.0f), u = r - 0.75f;
  float p = __builtin_fmaf(0.0309127886f, u, 0.0408137282f);
  p = __builtin_fmaf(p, u, -0.0539160735f);
  p = __builtin_fmaf(p, u, -0.111756254f);
  p = __builtin_fmaf(p, u, 0.0924115472f);
  p = __builtin_fmaf(p, u, 0.469807167f);
  p = __builtin_fmaf(p, u, 0.681706624f);
  p = __builtin_fmaf(p, u, 0.573139679f);
  p = __builtin_fmaf(p, u, 0.306526039f);
  const float tail = p * r * e;
  return {x < 0 ? tail : 1.0f - tail, e * 0.398942280f};
}

inline Normal<double> normal(double x) { return {std::erfc(x * -0.70710678118654752440) / 2, std::exp(x * x / -2) * 0.39894228040143267794}; }

/// f(z) and f′(z).
template <class C>
struct ValueAndSlope {
  C value, slope;
};

struct Gelu {
  template <class C>
  static ValueAndSlope<C> at(C z) {
    const Normal<C> n = normal(z);
    return {z * n.below, n.below + z * n.density};
  }
};

/// z·σ(2u) with u = √(2/π)·(z + 0.044715·z³), which is z·(1 + tanh u) / 2.
struct GeluTanh {
  template <class C>
  static ValueAndSlope<C> at(C z) {
    constexpr C kLinear = C(1.59576912160573071176), kCubic = kLinear * C(0.044715);
    const C square = z * z, s = logistic2(z * (C(kLog2E) * kLinear + C(kLog2E) * kCubic * square)), value = z * s;
    return {value, s + value * (1 - s) * (kLinear + 3 * kCubic * square)};
  }
};

struct Relu {
  template <class C>
  static ValueAndSlope<C> at(C z) {
    return {z < 0 ? C(0) : z, z > 0 ? C(1) : C(0)};
  }
};

struct SquaredRelu {
  template <class C>
  static ValueAndSlope<C> at(C z) {
    const C positive = z < 0 ? C(0) : z;
    return {positive * positive, 2 * positive};
  }
};

struct Silu {
  template <class C>
  static ValueAndSlope<C> at(C z) {
    const C s = logistic2(C(kLog2E) * z), value = z * s;
    return {value, s + value * (1 - s)};
  }
};

struct QuickGelu {
  template <class C>
  static ValueAndSlope<C> at(C z) {
    const C s = logistic2(C(1.702 * kLog2E) * z), value = z * s;
    return {value, s + C(1.702) * value * (1 - s)};
  }
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
