// The activations and their derivatives without branches. Sixteen floats at a time use polynomials,
// and single f64 numbers use the C library.
#pragma once

#include <cmath>

#include "kernels/cpu/vec16f.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

inline Vec16f constant(double x, Vec16f) { return broadcast(static_cast<float>(x)); }
inline double constant(double x, double) { return x; }

inline double multiply_add(double a, double b, double c) { return a * b + c; }
inline double where_less(double a, double b, double x, double y) { return a < b ? x : y; }

/// Returns 1 / (1 + 2ˣ).
inline Vec16f falling_logistic2(Vec16f x) {
  return broadcast(1.0f) / (broadcast(1.0f) + exp2_in_range(smaller(larger(x, broadcast(-126.0f)),
                                                                    broadcast(126.0f))));
}

inline double falling_logistic2(double x) { return 1 / (1 + std::exp2(x)); }

/// Distribution function and density of the standard normal distribution.
template <class V>
struct Normal {
  V below;    ///< Φ(x) = (1 + erf(x / √2)) / 2
  V density;  ///< φ(x) = e^(−x²/2) / √(2π)
};

/// Φ(−|x|) = e^(−x²/2)·r·P(r) with r = 1 / (1 + 0.265·|x|), after Hastings (Abramowitz & Stegun
/// 26.2.17). P is minimax in relative error (1e-8 for |x| ≤ 13), so the tail keeps its digits.
inline Normal<Vec16f> normal(Vec16f x) {
  const Vec16f bounded = smaller(larger(x, broadcast(0.0f) - x), broadcast(13.0f)),
               e = exp2_in_range(bounded * bounded * broadcast(-0.721347520f));
  const Vec16f r = broadcast(1.0f) / multiply_add(bounded, broadcast(0.265f), broadcast(1.0f)),
               u = r - broadcast(0.75f);
  Vec16f p = multiply_add(broadcast(0.0309127886f), u, broadcast(0.0408137282f));
  p = multiply_add(p, u, broadcast(-0.0539160735f));
  p = multiply_add(p, u, broadcast(-0.111756254f));
  p = multiply_add(p, u, broadcast(0.0924115472f));
  p = multiply_add(p, u, broadcast(0.469807167f));
  p = multiply_add(p, u, broadcast(0.681706624f));
  p = multiply_add(p, u, broadcast(0.573139679f));
  p = multiply_add(p, u, broadcast(0.306526039f));
  const Vec16f tail = p * r * e;
  return {where_less(x, broadcast(0.0f), tail, broadcast(1.0f) - tail),
          e * broadcast(0.398942280f)};
}

inline Normal<double> normal(double x) {
  return {std::erfc(x * -0.70710678118654752440) / 2,
          std::exp(x * x / -2) * 0.39894228040143267794};
}

/// f(z) and f′(z).
template <class V>
struct ValueAndDerivative {
  V value, slope;
};

/// The clamp and the offset of a gated form. What is not a number stays so, and gradients pass at
/// the bounds themselves, as in torch.clamp().
template <class V>
struct GateBounds {
  V most, least, offset;

  V gate(V z) const { return where_less(most, z, most, z); }
  V up(V z) const { return where_less(z, least, least, gate(z)) + offset; }
  /// Return d where the value is within the bounds, else 0.
  V gate_gradient(V z, V d) const { return where_less(most, z, constant(0, z), d); }
  V up_gradient(V z, V d) const {
    return where_less(z, least, constant(0, z), gate_gradient(z, d));
  }
};

struct Gelu {
  template <class V>
  static ValueAndDerivative<V> at(V z) {
    const Normal<V> n = normal(z);
    return {z * n.below, multiply_add(z, n.density, n.below)};
  }
};

/// Returns z·s and its derivative for s = σ(argument), given s and the derivative of the argument.
template <class V>
ValueAndDerivative<V> times_logistic(V z, V s, V argument_slope) {
  const V value = z * s;
  return {value, multiply_add(value * (constant(1, z) - s), argument_slope, s)};
}

/// z·σ(2u) with u = √(2/π)·(z + 0.044715·z³), which equals z·(1 + tanh u) / 2.
struct GeluTanh {
  template <class V>
  static ValueAndDerivative<V> at(V z) {
    constexpr double kLinear = 1.59576912160573071176, kCubic = kLinear * 0.044715;
    const V square = z * z;
    const V s = falling_logistic2(
        z * multiply_add(square, constant(-kLog2E * kCubic, z), constant(-kLog2E * kLinear, z)));
    return times_logistic(z, s,
                          multiply_add(square, constant(3 * kCubic, z), constant(kLinear, z)));
  }
};

struct Relu {
  template <class V>
  static ValueAndDerivative<V> at(V z) {
    const V zero = constant(0, z);
    return {where_less(z, zero, zero, z), where_less(zero, z, constant(1, z), zero)};
  }
};

struct SquaredRelu {
  template <class V>
  static ValueAndDerivative<V> at(V z) {
    const V positive = where_less(z, constant(0, z), constant(0, z), z);
    return {positive * positive, positive + positive};
  }
};

struct Silu {
  template <class V>
  static ValueAndDerivative<V> at(V z) {
    return times_logistic(z, falling_logistic2(z * constant(-kLog2E, z)), constant(1, z));
  }
};

struct QuickGelu {
  template <class V>
  static ValueAndDerivative<V> at(V z) {
    return times_logistic(z, falling_logistic2(z * constant(-1.702 * kLog2E, z)),
                          constant(1.702, z));
  }
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
