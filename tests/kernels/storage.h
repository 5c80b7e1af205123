// Arrays of any storage type for kernel tests. They are filled from doubles and read back as
// doubles.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/portable.h"

namespace megatron::kernels {

class Storage {
 public:
  Storage(Type type, std::size_t count)
      : type_(type),
        count_(count),
        bytes_(count * (type == Type::f64   ? 8
                        : type == Type::f32 ? 4
                                            : 2),
               0xA5) {}

  Type type() const { return type_; }
  std::size_t size() const { return count_; }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  double operator[](std::size_t i) const {
    return cuda::load_element<double>(data(), type_, static_cast<std::int64_t>(i));
  }
  void set(std::size_t i, double value) {
    cuda::store_element(data(), type_, static_cast<std::int64_t>(i), value);
  }
  bool operator==(const Storage&) const = default;

 private:
  Type type_;
  std::size_t count_;
  std::vector<unsigned char> bytes_;
};

/// Fills an array with deterministic numbers in (−scale, scale) that use all the bits of the type.
inline Storage numbers(Type type, std::size_t count, std::uint64_t seed, double scale = 1) {
  Storage result(type, count);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    result.set(i, scale * (static_cast<double>(static_cast<std::int64_t>(state)) * 0x1p-63));
  }
  return result;
}

/// Returns how much rounding to `type` may change a number of size 1.
inline double epsilon_of(Type type) {
  switch (type) {
    case Type::f32:
      return 0x1p-23;
    case Type::f64:
      return 0x1p-52;
    case Type::bf16:
      return 0x1p-8;
    case Type::f16:
      return 0x1p-11;
  }
  return 0;
}

inline Type compute_type(Type type) { return type == Type::f64 ? Type::f64 : Type::f32; }

/// Calls use.operator()<A, B>() with the CUDA bodies' element types of two storage types that
/// kernels accept together.
template <class Use>
void with_element_types(Type a, Type b, const Use& use) {
  const auto second = [&]<class A>() {
    if (a == b) return use.template operator()<A, A>();
    if constexpr (std::is_same_v<A, float>) {
      if (b == Type::bf16) return use.template operator()<A, cuda::Bf16>();
      if (b == Type::f16) return use.template operator()<A, cuda::Half>();
    } else if constexpr (!std::is_same_v<A, double>) {
      if (b == Type::f32) return use.template operator()<A, float>();
    }
  };
  if (a == Type::f32) second.template operator()<float>();
  if (a == Type::f64) second.template operator()<double>();
  if (a == Type::bf16) second.template operator()<cuda::Bf16>();
  if (a == Type::f16) second.template operator()<cuda::Half>();
}

struct TypePair {
  Type a, b;
};
inline constexpr TypePair kTypePairs[] = {{Type::f32, Type::f32},   {Type::f64, Type::f64},
                                          {Type::bf16, Type::bf16}, {Type::f16, Type::f16},
                                          {Type::f32, Type::bf16},  {Type::f32, Type::f16}};

}  // namespace megatron::kernels
