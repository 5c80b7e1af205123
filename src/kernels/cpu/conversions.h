// Converts between f32 and the storage types, with one rounding to nearest even. The result does
// not depend on the instruction set.
#pragma once

#include <cstdint>

#include "kernels/cpu/inline.h"
#include "kernels/type.h"

namespace megatron::kernels {

struct StateCode;

struct Conversions {
  /// The storage may have any type. f64 is rounded.
  void (*to_f32)(const void* from, Type type, float* to, std::int64_t count);
  void (*from_f32)(const float* from, void* to, Type type, std::int64_t count);
  /// Convert f16 with a scale for each kStateBlock elements, a power of two that brings the largest
  /// of them into [2¹⁴, 2¹⁵). Decoding is exact, and encoding the decoded numbers gives the same
  /// bits.
  void (*decode_blocks)(const std::uint16_t* from, const float* scales, float* to,
                        std::int64_t count);
  void (*encode_blocks)(const float* from, std::uint16_t* to, float* scales, std::int64_t count);
  /// Convert bytes of a code whose scale is the largest magnitude of kStateBlock elements. Encoding
  /// the decoded numbers gives the same bytes and scales.
  void (*decode_bytes)(const StateCode& code, const std::uint8_t* from, const float* scales,
                       float* to, std::int64_t count);
  void (*encode_bytes)(const StateCode& code, const float* from, std::uint8_t* to, float* scales,
                       std::int64_t count);
};

/// Returns the conversions of the best instruction set of this CPU.
const Conversions& conversions();

/// Returns the size of one element in bytes.
MEGATRON_KERNEL_INLINE constexpr std::int64_t size_of(Type type) {
  return type == Type::f64 ? 8 : type == Type::f32 ? 4 : 2;
}

/// Returns the address of element `index` of an array.
MEGATRON_KERNEL_INLINE const char* element_at(const void* array, Type type, std::int64_t index) {
  return static_cast<const char*>(array) + index * size_of(type);
}
MEGATRON_KERNEL_INLINE char* element_at(void* array, Type type, std::int64_t index) {
  return static_cast<char*>(array) + index * size_of(type);
}

}  // namespace megatron::kernels
