// The conversions, compiled once for each instruction set: the CPU's float16 instructions are ten
// times as fast as the portable code.
#include "kernels/cpu/conversions.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"
#include "kernels/optimizer_operations.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

inline void to_f32(const void* from, Type type, float* __restrict to, std::int64_t count) {
  with_type(type, [&]<class T>(T) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<float>(load(static_cast<const T*>(from)[i]));
  });
}

inline void from_f32(const float* __restrict from, void* to, Type type, std::int64_t count) {
  with_type(type, [&]<class T>(T) {
    for (std::int64_t i = 0; i < count; ++i) store(static_cast<T*>(to)[i], from[i]);
  });
}

inline void decode_blocks(const std::uint16_t* from, const float* scales, float* to,
                          std::int64_t count) {
  to_f32(from, Type::f16, to, count);
  for (std::int64_t begin = 0; begin < count; begin += kStateBlock) {
    const float scale = scales[begin / kStateBlock];
    for (std::int64_t i = begin; i < std::min(begin + kStateBlock, count); ++i) to[i] *= scale;
  }
}

/// Returns the power of two that brings `largest`, rounded to the eleven bits of f16, into [2¹⁴,
/// 2¹⁵).
inline float block_scale(float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  int exponent = 0;
  const float mantissa = std::frexp(largest, &exponent);  // in [½, 1)
  if (std::nearbyint(mantissa * 2048) == 2048) ++exponent;
  return std::ldexp(1.0f, std::max(exponent - 15, -126));
}

inline void encode_blocks(const float* from, std::uint16_t* to, float* scales, std::int64_t count) {
  float scaled[kStateBlock];
  for (std::int64_t begin = 0; begin < count; begin += kStateBlock) {
    const std::int64_t size = std::min(kStateBlock, count - begin);
    float largest = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const float magnitude = std::abs(from[begin + i]);
      largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = block_scale(largest);
    for (std::int64_t i = 0; i < size; ++i) scaled[i] = from[begin + i] / scale;
    from_f32(scaled, to + begin, Type::f16, size);
    scales[begin / kStateBlock] = scale;
  }
}

inline void decode_bytes(const StateCode& code, const std::uint8_t* __restrict from,
                         const float* scales, float* __restrict to, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kStateBlock) {
    const float scale = scales[begin / kStateBlock];
    const std::int64_t end = std::min(begin + kStateBlock, count);
    for (std::int64_t i = begin; i < end; ++i) to[i] = code.values[from[i]] * scale;
  }
}

inline void encode_bytes(const StateCode& code, const float* __restrict from,
                         std::uint8_t* __restrict to, float* scales, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kStateBlock) {
    const std::int64_t end = std::min(begin + kStateBlock, count);
    float largest = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const float magnitude = std::abs(from[i]);
      largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = state_code_scale(largest);
    for (std::int64_t i = begin; i < end; ++i) to[i] = encode_state(code, from[i] / scale);
    scales[begin / kStateBlock] = scale;
  }
}

Conversions conversions() {
  return {to_f32, from_f32, decode_blocks, encode_blocks, decode_bytes, encode_bytes};
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(Conversions, conversions)
