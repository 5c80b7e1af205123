// Elementary functions of f32 that compilers turn into vector instructions: no branches, no tables, the same bits in every lane and instruction set.
// Included once per instruction set inside the namespace MEGATRON_KERNEL_ISA.
#pragma once

#include <cstdint>
#include <cstring>

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Added to and taken from |x| < 2²², it leaves the nearest integer, which the sum's low bits hold.
inline constexpr float kRoundingShift = 0x1.8p23f;

/// 2^x to within one unit in the last place for x in [−126, 127]; 0 below −126.5, at −∞ too; NaN stays. Not for larger x. exp2_f32(0) is 1.
inline float exp2_f32(float x) {
  const float clamped = x < -127.0f ? -127.0f : x;
  const float shifted = clamped + kRoundingShift;
  const float f = clamped - (shifted - kRoundingShift);  // in [−½, ½], exact; 2^f by a minimax polynomial (relative error 2e-9)
  float p = __builtin_fmaf(1.5345816e-4f, f, 1.3399931e-3f);
  p = __builtin_fmaf(p, f, 9.618489e-3f);
  p = __builtin_fmaf(p, f, 5.5503286e-2f);
  p = __builtin_fmaf(p, f, 2.4022646e-1f);
  p = __builtin_fmaf(p, f, 6.9314718e-1f);
  p = __builtin_fmaf(p, f, 1.0f);
  return p * float_of_bits((bits_of_float(shifted) << 23) + 0x3f800000u);  // times 2^n; 2⁻¹²⁷ has the bits of 0
}

/// e^x to within 1.5 units in the last place; 0 below −86.98 (at −∞ too), ∞ from 88.73 on; NaN stays.
inline float exp_f32(float x) {
  const float low = x < -86.98f ? -86.98f : x;
  const float clamped = low > 89.0f ? 89.0f : low;
  const float shifted = __builtin_fmaf(clamped, 1.44269504f, kRoundingShift);
  const float n = shifted - kRoundingShift;
  float r = __builtin_fmaf(n, -0x1.62e4p-1f, clamped);  // ln 2 in two parts, the first times n exact
  r = __builtin_fmaf(n, -0x1.7f7d1cp-20f, r);
  float q = __builtin_fmaf(1.3814569e-3f, r, 8.3687305e-3f);  // (e^r − 1 − r) / r² by a minimax polynomial (relative error 3e-9)
  q = __builtin_fmaf(q, r, 4.1668389e-2f);
  q = __builtin_fmaf(q, r, 1.6666521e-1f);
  q = __builtin_fmaf(q, r, 4.9999994e-1f);
  const float p = __builtin_fmaf(q, r * r, r) + 1.0f;
  const float half_power = float_of_bits((bits_of_float(shifted) << 23) + 0x3f000000u);  // 2^(n − 1): n may be 128
  const float result = p * half_power * 2.0f;
  return x < -86.98f ? 0.0f : result;
}

/// tanh x to within two units in the last place; NaN stays.
inline float tanh_f32(float x) {
  const float size = x < 0.0f ? -x : x, square = x * x;
  float p = __builtin_fmaf(-5.9058671e-3f, square, 2.0805383e-2f);  // (tanh x / x − 1) / x² below 0.6 by a minimax polynomial (relative error 3e-9)
  p = __builtin_fmaf(p, square, -5.3786684e-2f);
  p = __builtin_fmaf(p, square, 1.3331959e-1f);
  p = __builtin_fmaf(p, square, -3.3333299e-1f);
  const float small = __builtin_fmaf(size * square, p, size);
  const float e = exp_f32(-2.0f * size);
  const float large = (1.0f - e) / (1.0f + e);
  const float result = size < 0.6f ? small : large;
  return x < 0.0f ? -result : result;
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
