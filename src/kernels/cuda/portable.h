// Lets one source be the body of a CUDA kernel and a host function: the macro, the 16-bit types,
// loads and stores through the computing type. Arithmetic is the same on both sides, because the
// plugin is compiled without contraction. So tests run the bodies on machines without a GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/type.h"

#if defined(__CUDACC__)
#define MEGATRON_HOST_DEVICE __host__ __device__
#define MEGATRON_ANY_TEAM _Pragma("nv_exec_check_disable")
#else
#define MEGATRON_HOST_DEVICE
#define MEGATRON_ANY_TEAM
#endif

namespace megatron::kernels::cuda {

struct Bf16 {
  std::uint16_t bits;
};
struct Half {
  std::uint16_t bits;
};

MEGATRON_HOST_DEVICE inline std::uint32_t bits_of(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}
MEGATRON_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

/// Rounds to nearest, ties to even. NaN stays NaN.
MEGATRON_HOST_DEVICE inline Bf16 to_bf16(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {0x7FC0};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

MEGATRON_HOST_DEVICE inline float from_bf16(Bf16 x) {
  return float_of(static_cast<std::uint32_t>(x.bits) << 16);
}

/// Rounds to nearest, ties to even, also to subnormals. 65520 and larger numbers become infinity.
MEGATRON_HOST_DEVICE inline Half to_half(float x) {
  const std::uint32_t bits = bits_of(x), sign = (bits >> 16) & 0x8000u,
                      magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u;
  } else if (magnitude >= 0x47800000u) {  // 65536
    half = 0x7C00u;
  } else if (magnitude <
             0x38800000u) {  // 2⁻¹⁴: the sum with ½ has halves' smallest step as its last bit
    half = bits_of(float_of(magnitude) + 0.5f) - 0x3F000000u;
  } else {
    half = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

MEGATRON_HOST_DEVICE inline float from_half(Half x) {
  const std::uint32_t sign = (x.bits & 0x8000u) << 16, exponent = (x.bits >> 10) & 0x1Fu,
                      fraction = x.bits & 0x3FFu;
  if (exponent == 0x1Fu) return float_of(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

MEGATRON_HOST_DEVICE inline float square_root(float x) { return std::sqrt(x); }
MEGATRON_HOST_DEVICE inline double square_root(double x) { return std::sqrt(x); }

/// The type in which elements of T are computed.
template <class T>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeType<T>::type;

MEGATRON_HOST_DEVICE inline float load(float x) { return x; }
MEGATRON_HOST_DEVICE inline double load(double x) { return x; }
MEGATRON_HOST_DEVICE inline float load(Bf16 x) { return from_bf16(x); }
MEGATRON_HOST_DEVICE inline float load(Half x) { return from_half(x); }

MEGATRON_HOST_DEVICE inline void store(float& to, float x) { to = x; }
MEGATRON_HOST_DEVICE inline void store(double& to, double x) { to = x; }
MEGATRON_HOST_DEVICE inline void store(Bf16& to, float x) { to = to_bf16(x); }
MEGATRON_HOST_DEVICE inline void store(Half& to, float x) { to = to_half(x); }

/// Loads element `index` of an array whose type is known at run time.
template <class C>
MEGATRON_HOST_DEVICE inline C load_element(const void* data, Type type, std::int64_t index) {
  switch (type) {
    case Type::f32:
      return static_cast<C>(static_cast<const float*>(data)[index]);
    case Type::f64:
      return static_cast<C>(static_cast<const double*>(data)[index]);
    case Type::bf16:
      return static_cast<C>(from_bf16(static_cast<const Bf16*>(data)[index]));
    case Type::f16:
      return static_cast<C>(from_half(static_cast<const Half*>(data)[index]));
  }
  return C(0);
}

template <class C>
MEGATRON_HOST_DEVICE inline void store_element(void* data, Type type, std::int64_t index, C value) {
  switch (type) {
    case Type::f32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case Type::f64:
      static_cast<double*>(data)[index] = static_cast<double>(value);
      return;
    case Type::bf16:
      static_cast<Bf16*>(data)[index] = to_bf16(static_cast<float>(value));
      return;
    case Type::f16:
      static_cast<Half*>(data)[index] = to_half(static_cast<float>(value));
      return;
  }
}

}  // namespace megatron::kernels::cuda
