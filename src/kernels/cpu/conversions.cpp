#include "kernels/cpu/conversions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {
namespace {

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/// The power of two that brings `largest`, rounded to the eleven bits of f16, into [2¹⁴, 2¹⁵).
float block_scale(float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  int exponent = 0;
  const float mantissa = std::frexp(largest, &exponent);  // in [½, 1)
  if (std::nearbyint(mantissa * 2048) == 2048) ++exponent;
  return std::ldexp(1.0f, std::max(exponent - 15, -126));
}

}  // namespace

std::int64_t size_of(Type type) { return type == Type::f64 ? 8 : type == Type::f32 ? 4 : 2; }

void to_f32(const void* from, Type type, float* __restrict to, std::int64_t count) {
  switch (type) {
    case Type::f32:
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case Type::f64:
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<const double*>(from)[i]);
      return;
    case Type::bf16:
      for (std::int64_t i = 0; i < count; ++i) to[i] = from_bf16(static_cast<const std::uint16_t*>(from)[i]);
      return;
    case Type::f16:
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<const _Float16*>(from)[i]);
      return;
  }
}

void from_f32(const float* __restrict from, void* to, Type type, std::int64_t count) {
  switch (type) {
    case Type::f32:
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case Type::f64:
      for (std::int64_t i = 0; i < count; ++i) static_cast<double*>(to)[i] = from[i];
      return;
    case Type::bf16:
      for (std::int64_t i = 0; i < count; ++i) static_cast<std::uint16_t*>(to)[i] = to_bf16(from[i]);
      return;
    case Type::f16:
      for (std::int64_t i = 0; i < count; ++i) static_cast<_Float16*>(to)[i] = static_cast<_Float16>(from[i]);
      return;
  }
}

void decode_blocks(const std::uint16_t* from, const float* scales, float* to, std::int64_t count) {
  to_f32(from, Type::f16, to, count);
  for (std::int64_t i = 0; i < count; ++i) to[i] *= scales[i / kStateBlock];
}

void encode_blocks(const float* from, std::uint16_t* to, float* scales, std::int64_t count) {
  float scaled[kStateBlock];
  for (std::int64_t begin = 0; begin < count; begin += kStateBlock) {
    const std::int64_t size = std::min(kStateBlock, count - begin);
    float largest = 0;
    for (std::int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(from[begin + i]));
    const float scale = block_scale(largest);
    for (std::int64_t i = 0; i < size; ++i) scaled[i] = from[begin + i] / scale;
    from_f32(scaled, to + begin, Type::f16, size);
    scales[begin / kStateBlock] = scale;
  }
}

}  // namespace megatron::kernels
