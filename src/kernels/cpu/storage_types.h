// Storage types of the CPU kernels. Numbers are loaded into a computing type (double for double,
// else float) and stored with one rounding to nearest even.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/half.h"
#include "kernels/row_operations.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// bfloat16 is the upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

/// IEEE half precision.
using F16 = NativeHalf;

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
inline Compute<T> load(T value) {
  return static_cast<Compute<T>>(value);
}

inline float load(Bf16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

template <class T>
inline void store(T& to, Compute<T> value) {
  to = static_cast<T>(value);
}

inline void store(Bf16& to, float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to.bits = static_cast<std::uint16_t>(value != value ? 0x7fc0u : rounded);
}

/// Calls f(T{}) for the storage type.
template <class F>
void with_type(Type type, F f) {
  switch (type) {
    case Type::f32:
      return f(float{});
    case Type::f64:
      return f(double{});
    case Type::bf16:
      return f(Bf16{});
    case Type::f16:
      return f(F16{});
  }
}

/// Calls f(A{}, B{}) for two storage types that are equal or of which one is f32 and the other 16
/// bits wide.
template <class F>
void with_types(Type a, Type b, F f) {
  with_type(a, [&](auto first) {
    with_type(b, [&](auto second) {
      using A = decltype(first);
      using B = decltype(second);
      constexpr bool mixed = (std::is_same_v<A, float> && sizeof(B) == 2) ||
                             (std::is_same_v<B, float> && sizeof(A) == 2);
      if constexpr (std::is_same_v<A, B> || mixed) f(first, second);
    });
  });
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
