// A vector of sixteen floats, whatever the vector width of the instruction set. Code that uses it
// gives the same bits on every instruction set, and does not depend on the compiler's vectoriser.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

inline constexpr std::int64_t kNumLanes = 16;
inline constexpr double kLog2E = 1.44269504088896340736;

/// Sixteen floats.
struct Vec16f {
#if defined(__AVX512F__)
  __m512 v;
#elif defined(__AVX2__)
  __m256 low, high;
#else
  float v[kNumLanes];
#endif
};

#if defined(__AVX512F__)

inline Vec16f broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec16f load_vec(const float* from) { return {_mm512_loadu_ps(from)}; }
inline Vec16f load_vec(const Bf16* from) {
  const __m512i bits =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
}
inline Vec16f load_vec(const F16* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline void store_vec(float* to, Vec16f x) { _mm512_storeu_ps(to, x.v); }
inline void store_vec(Bf16* to, Vec16f x) {
  const __m512i bits = _mm512_castps_si512(x.v),
                odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc0))));
}
inline void store_vec(F16* to, Vec16f x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Vec16f operator+(Vec16f a, Vec16f b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec16f operator-(Vec16f a, Vec16f b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec16f operator*(Vec16f a, Vec16f b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec16f operator/(Vec16f a, Vec16f b) { return {_mm512_div_ps(a.v, b.v)}; }
/// Returns a·b + c with one rounding.
inline Vec16f multiply_add(Vec16f a, Vec16f b, Vec16f c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Vec16f square_root(Vec16f a) { return {_mm512_sqrt_ps(a.v)}; }
/// a > b ? a : b
inline Vec16f larger(Vec16f a, Vec16f b) { return {_mm512_max_ps(a.v, b.v)}; }
/// a < b ? a : b
inline Vec16f smaller(Vec16f a, Vec16f b) { return {_mm512_min_ps(a.v, b.v)}; }
/// a < b ? x : y
inline Vec16f where_less(Vec16f a, Vec16f b, Vec16f x, Vec16f y) {
  return {_mm512_mask_mov_ps(y.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), x.v)};
}
/// Returns whether a < b in every lane.
inline bool all_less(Vec16f a, Vec16f b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ) == 0xFFFF;
}
/// Returns lanes i + kHalf of x in the lanes i < kHalf, for kHalf = 8, 4, 2 or 1.
template <int kHalf>
inline Vec16f upper_lanes(Vec16f x) {
  if constexpr (kHalf >= 4) return {_mm512_shuffle_f32x4(x.v, x.v, kHalf == 8 ? 0xEE : 0x55)};
  return {_mm512_permute_ps(x.v, kHalf == 2 ? 0xEE : 0x55)};
}
inline float first_lane(Vec16f x) { return _mm512_cvtss_f32(x.v); }
/// Returns x·2ⁿ for whole numbers n, if the result is a normal number. `shifted` holds n + 1.5·2²³.
/// The function adds bits, so that x = 1 and n = −127 give 0.
inline Vec16f scaled_by_power(Vec16f x, Vec16f shifted) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(
      _mm512_castps_si512(x.v), _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23)))};
}
/// Returns x in lanes whose draw is at least `threshold`, and 0 in the others.
inline Vec16f where_kept(const std::uint32_t* draws, std::uint32_t threshold, Vec16f x) {
  const __mmask16 kept = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(draws),
                                                 _mm512_set1_epi32(static_cast<int>(threshold)));
  return {_mm512_maskz_mov_ps(kept, x.v)};
}
/// Stores bf16 operands of a GEMM, rounded to nearest with halves away from zero, which takes two
/// instructions. A NaN stays NaN unless all its low bits are set, which arithmetic does not
/// produce.
inline void store_operands(std::uint16_t* to, Vec16f x) {
  const __m512i bits =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x8000)), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(bits));
}

#elif defined(__AVX2__)

inline Vec16f broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec16f load_vec(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
inline __m256 load_eight(const Bf16* from) {
  const __m256i bits =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
inline Vec16f load_vec(const Bf16* from) { return {load_eight(from), load_eight(from + 8)}; }
inline __m256 load_eight(const F16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline Vec16f load_vec(const F16* from) { return {load_eight(from), load_eight(from + 8)}; }
inline void store_vec(float* to, Vec16f x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}
inline __m256i rounded_upper_half(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x),
                odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0),
                            _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
inline void store_vec(Bf16* to, Vec16f x) {
  const __m256i packed = _mm256_packus_epi32(rounded_upper_half(x.low), rounded_upper_half(x.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xD8));
}
inline void store_vec(F16* to, Vec16f x) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x.low, kRounding));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(x.high, kRounding));
}
inline Vec16f operator+(Vec16f a, Vec16f b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Vec16f operator-(Vec16f a, Vec16f b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Vec16f operator*(Vec16f a, Vec16f b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Vec16f operator/(Vec16f a, Vec16f b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Vec16f multiply_add(Vec16f a, Vec16f b, Vec16f c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec16f square_root(Vec16f a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
inline Vec16f larger(Vec16f a, Vec16f b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Vec16f smaller(Vec16f a, Vec16f b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline Vec16f where_less(Vec16f a, Vec16f b, Vec16f x, Vec16f y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline bool all_less(Vec16f a, Vec16f b) {
  return _mm256_movemask_ps(_mm256_and_ps(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ),
                                          _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))) == 0xFF;
}
template <int kHalf>
inline Vec16f upper_lanes(Vec16f x) {
  if constexpr (kHalf == 8) return {x.high, x.high};
  if constexpr (kHalf == 4) return {_mm256_permute2f128_ps(x.low, x.low, 0x11), x.high};
  return {_mm256_permute_ps(x.low, kHalf == 2 ? 0xEE : 0x55), x.high};
}
inline float first_lane(Vec16f x) { return _mm256_cvtss_f32(x.low); }
inline __m256 scaled_by_power(__m256 x, __m256 shifted) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x),
                                              _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}
inline Vec16f scaled_by_power(Vec16f x, Vec16f shifted) {
  return {scaled_by_power(x.low, shifted.low), scaled_by_power(x.high, shifted.high)};
}
inline __m256 where_kept(const std::uint32_t* draws, __m256i threshold, __m256 x) {
  const __m256i drawn = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(draws));
  return _mm256_and_ps(
      x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(drawn, threshold), drawn)));
}
inline Vec16f where_kept(const std::uint32_t* draws, std::uint32_t threshold, Vec16f x) {
  const __m256i least = _mm256_set1_epi32(static_cast<int>(threshold));
  return {where_kept(draws, least, x.low), where_kept(draws + 8, least, x.high)};
}
inline __m256i upper_half(__m256 x) {
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(0x8000)), 16);
}
inline void store_operands(std::uint16_t* to, Vec16f x) {
  const __m256i packed = _mm256_packus_epi32(upper_half(x.low), upper_half(x.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xD8));
}

#else

/// Returns f(lane) in every lane.
template <class F>
inline Vec16f each(F f) {
  Vec16f result;
  for (int i = 0; i < kNumLanes; ++i) result.v[i] = f(i);
  return result;
}
inline Vec16f broadcast(float x) {
  return each([&](int) { return x; });
}
template <class T>
inline Vec16f load_vec(const T* from) {
  return each([&](int i) { return load(from[i]); });
}
template <class T>
inline void store_vec(T* to, Vec16f x) {
  for (int i = 0; i < kNumLanes; ++i) store(to[i], x.v[i]);
}
inline Vec16f operator+(Vec16f a, Vec16f b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec16f operator-(Vec16f a, Vec16f b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec16f operator*(Vec16f a, Vec16f b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec16f operator/(Vec16f a, Vec16f b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
inline Vec16f multiply_add(Vec16f a, Vec16f b, Vec16f c) {
  return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline Vec16f square_root(Vec16f a) {
  return each([&](int i) { return __builtin_sqrtf(a.v[i]); });
}
inline Vec16f larger(Vec16f a, Vec16f b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec16f smaller(Vec16f a, Vec16f b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec16f where_less(Vec16f a, Vec16f b, Vec16f x, Vec16f y) {
  return each([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
inline bool all_less(Vec16f a, Vec16f b) {
  int count = 0;
  for (int i = 0; i < kNumLanes; ++i) count += a.v[i] < b.v[i] ? 1 : 0;
  return count == kNumLanes;
}
template <int kHalf>
inline Vec16f upper_lanes(Vec16f x) {
  return each([&](int i) { return x.v[(i + kHalf) % kNumLanes]; });
}
inline float first_lane(Vec16f x) { return x.v[0]; }
inline Vec16f scaled_by_power(Vec16f x, Vec16f shifted) {
  return each([&](int i) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x.v[i]) +
                      (__builtin_bit_cast(std::uint32_t, shifted.v[i]) << 23);
    return __builtin_bit_cast(float, bits);
  });
}
inline Vec16f where_kept(const std::uint32_t* draws, std::uint32_t threshold, Vec16f x) {
  return each([&](int i) { return draws[i] >= threshold ? x.v[i] : 0.0f; });
}
inline void store_operands(std::uint16_t* to, Vec16f x) {
  for (int i = 0; i < kNumLanes; ++i)
    to[i] = static_cast<std::uint16_t>((__builtin_bit_cast(std::uint32_t, x.v[i]) + 0x8000u) >> 16);
}

#endif

/// Returns eˣ within one unit in the last place, 0 where eˣ is below the normal numbers, and NaN
/// for NaN. x = n·ln 2 + r and eʳ = 1 + r + r²·q(r) for |r| ≤ ln 2 / 2. The polynomial q of degree
/// 4 has the least relative error (3·10⁻⁹).
inline Vec16f exponential(Vec16f x) {
  const Vec16f shifter = broadcast(0x1.8p23f), least = broadcast(-87.3365402f),
               largest = broadcast(88.7228317f);  // results up to here are normal numbers
  const Vec16f shifted = multiply_add(x, broadcast(1.44269504f), shifter), n = shifted - shifter;
  const Vec16f r =
      multiply_add(n, broadcast(-0x1.7f7d1cp-20f), multiply_add(n, broadcast(-0x1.62e4p-1f), x));
  Vec16f q = broadcast(0.0013814583653584123f);
  q = multiply_add(q, r, broadcast(0.008368724025785923f));
  q = multiply_add(q, r, broadcast(0.04166838899254799f));
  q = multiply_add(q, r, broadcast(0.1666652113199234f));
  q = multiply_add(q, r, broadcast(0.4999999403953552f));
  const Vec16f power = scaled_by_power(broadcast(1) + multiply_add(q, r * r, r), shifted);
  const Vec16f finite = multiply_add(broadcast(0), r, power);  // keeps NaN whatever its bits
  return where_less(x, least, broadcast(0),
                    where_less(largest, x, broadcast(__builtin_inff()), finite));
}

/// Returns 2ᶠ for |f| ≤ ½ by a polynomial of least relative error (2·10⁻⁹). 2⁰ is exactly 1.
inline Vec16f exp2_of_fraction(Vec16f f) {
  Vec16f p = multiply_add(broadcast(1.5345816e-4f), f, broadcast(1.3399931e-3f));
  p = multiply_add(p, f, broadcast(9.618489e-3f));
  p = multiply_add(p, f, broadcast(5.5503286e-2f));
  p = multiply_add(p, f, broadcast(2.4022646e-1f));
  p = multiply_add(p, f, broadcast(6.9314718e-1f));
  return multiply_add(p, f, broadcast(1));
}

/// Returns 2ˣ for |x| ≤ 126 within one unit in the last place.
inline Vec16f exp2_in_range(Vec16f x) {
  const Vec16f shifter = broadcast(0x1.8p23f), shifted = x + shifter;
  return scaled_by_power(exp2_of_fraction(x - (shifted - shifter)), shifted);
}

/// Returns 2ˣ for x ≤ 127 within one unit in the last place, 0 below −126.5 (also for −∞), and NaN
/// for NaN. Larger x are not allowed.
inline Vec16f exp2(Vec16f x) {
  const Vec16f shifter = broadcast(0x1.8p23f), clamped = larger(broadcast(-127), x),
               shifted = clamped + shifter;
  return exp2_of_fraction(clamped - (shifted - shifter)) * scaled_by_power(broadcast(1), shifted);
}

/// Returns tanh x within two units in the last place, and NaN for NaN. Below 0.6 it is x + x³·p(x²)
/// with the polynomial p of least relative error (3·10⁻⁹), and nothing else is computed when that
/// holds for all lanes.
inline Vec16f tanh(Vec16f x) {
  const Vec16f square = x * x;
  Vec16f p = multiply_add(broadcast(-5.9058671e-3f), square, broadcast(2.0805383e-2f));
  p = multiply_add(p, square, broadcast(-5.3786684e-2f));
  p = multiply_add(p, square, broadcast(1.3331959e-1f));
  p = multiply_add(p, square, broadcast(-3.3333299e-1f));
  if (all_less(square, broadcast(0.35f))) return multiply_add(x * square, p, x);
  const Vec16f zero = broadcast(0), size = where_less(x, zero, zero - x, x),
               small = multiply_add(size * square, p, size), e = exponential(broadcast(-2) * size),
               large = (broadcast(1) - e) / (broadcast(1) + e);
  const Vec16f result = where_less(size, broadcast(0.6f), small, large);
  return where_less(x, zero, zero - result, result);
}

/// Loads the first `count` ≤ 16 numbers. The other lanes hold `rest`.
template <class T>
inline Vec16f load_partial(const T* from, std::int64_t count, float rest) {
  if (count >= kNumLanes) return load_vec(from);
  float values[kNumLanes];
  for (std::int64_t i = 0; i < kNumLanes; ++i) values[i] = i < count ? load(from[i]) : rest;
  return load_vec(values);
}

/// Stores the first `count` ≤ 16 lanes.
template <class T>
inline void store_partial(T* to, std::int64_t count, Vec16f x) {
  if (count >= kNumLanes) return store_vec(to, x);
  float values[kNumLanes];
  store_vec(values, x);
  for (std::int64_t i = 0; i < count; ++i) store(to[i], values[i]);
}

/// Folds the lanes: lane i takes lane i + half, for half = 8 … 1.
template <class Take>
inline float reduce_lanes(Vec16f x, Take take) {
  x = take(x, upper_lanes<8>(x));
  x = take(x, upper_lanes<4>(x));
  x = take(x, upper_lanes<2>(x));
  return first_lane(take(x, upper_lanes<1>(x)));
}
inline float horizontal_sum(Vec16f x) {
  return reduce_lanes(x, [](Vec16f a, Vec16f b) { return a + b; });
}
inline float horizontal_max(Vec16f x) {
  return reduce_lanes(x, [](Vec16f a, Vec16f b) { return larger(a, b); });
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
