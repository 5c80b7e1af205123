// Philox4x32-10 in sixteen lanes (megatron/base/philox.h has the definition).
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr int kLanes = 16;

/// The four words of sixteen Philox counters.
struct PhiloxCounters {
  alignas(64) std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
};

#if defined(__AVX512F__)

/// The high and low halves of sixteen 32 × 32-bit multiplications.
struct MulHiLo {
  __m512i high, low;
};

inline MulHiLo mulhilo(__m512i a, std::uint32_t b) {
  constexpr __mmask8 kAll = 0xFF;
  constexpr __mmask16 kOdd = 0xAAAA;
  const __m512i factor = _mm512_set1_epi64(b), even = _mm512_maskz_mul_epu32(kAll, a, factor),
                odd = _mm512_maskz_mul_epu32(kAll, _mm512_maskz_srli_epi64(kAll, a, 32), factor);
  return {_mm512_mask_blend_epi32(kOdd, _mm512_maskz_srli_epi64(kAll, even, 32), odd),
          _mm512_mask_blend_epi32(kOdd, even, _mm512_maskz_slli_epi64(kAll, odd, 32))};
}

inline void philox_rounds(PhiloxCounters& lanes, std::uint32_t k0, std::uint32_t k1) {
  __m512i c0 = _mm512_load_si512(lanes.c0), c1 = _mm512_load_si512(lanes.c1),
          c2 = _mm512_load_si512(lanes.c2), c3 = _mm512_load_si512(lanes.c3);
  for (int round = 0; round < 10; ++round) {
    const MulHiLo p0 = mulhilo(c0, 0xD2511F53u), p1 = mulhilo(c2, 0xCD9E8D57u);
    c0 = _mm512_xor_si512(_mm512_xor_si512(p1.high, c1), _mm512_set1_epi32(static_cast<int>(k0)));
    c2 = _mm512_xor_si512(_mm512_xor_si512(p0.high, c3), _mm512_set1_epi32(static_cast<int>(k1)));
    c1 = p1.low;
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  _mm512_store_si512(lanes.c0, c0);
  _mm512_store_si512(lanes.c1, c1);
  _mm512_store_si512(lanes.c2, c2);
  _mm512_store_si512(lanes.c3, c3);
}

#else

inline void philox_rounds(PhiloxCounters& lanes, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * lanes.c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * lanes.c2[i];
      const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ lanes.c1[i] ^ k0;
      const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ lanes.c3[i] ^ k1;
      lanes.c0[i] = n0;
      lanes.c1[i] = static_cast<std::uint32_t>(p1);
      lanes.c2[i] = n2;
      lanes.c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

#endif

/// Makes 64 draws: sixteen consecutive Philox blocks of one ordinal. draws[4·i + lane] belongs to
/// element 4·(block + i) + lane.
inline void draw_blocks(std::uint64_t key, std::uint64_t block, std::uint64_t ordinal,
                        std::uint32_t* draws) {
  PhiloxCounters lanes;
  for (int i = 0; i < kLanes; ++i) {
    lanes.c0[i] = static_cast<std::uint32_t>(block + i);
    lanes.c1[i] = static_cast<std::uint32_t>((block + i) >> 32);
    lanes.c2[i] = static_cast<std::uint32_t>(ordinal);
    lanes.c3[i] = static_cast<std::uint32_t>(ordinal >> 32);
  }
  philox_rounds(lanes, static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
  for (int i = 0; i < kLanes; ++i) {
    draws[4 * i] = lanes.c0[i];
    draws[4 * i + 1] = lanes.c1[i];
    draws[4 * i + 2] = lanes.c2[i];
    draws[4 * i + 3] = lanes.c3[i];
  }
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
