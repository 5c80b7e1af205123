// One code for floats, sixteen at a time, and for doubles, one at a time.
#pragma once

#include <cstdint>

#include "kernels/cpu/activation_math.h"
#include "kernels/cpu/vec16f.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// The vectors that compute in C. Functions with a `count` load and store the first of the lanes;
/// the others are zeros.
template <class C>
struct Vectors;
template <>
struct Vectors<float> {
  using V = Vec16f;
  static constexpr std::int64_t kLanes = kNumLanes;
  static V splat(float x) { return broadcast(x); }
  static V load(const float* x) { return load_vec(x); }
  static void store(float* to, V x) { store_vec(to, x); }
  template <class T>
  static V load(const T* x, std::int64_t count) {
    return load_partial(x, count, 0);
  }
  template <class T>
  static void store(T* to, std::int64_t count, V x) {
    store_partial(to, count, x);
  }
  static float sum(V x) { return horizontal_sum(x); }
};
template <>
struct Vectors<double> {
  using V = double;
  static constexpr std::int64_t kLanes = 1;
  static V splat(double x) { return x; }
  static V load(const double* x) { return *x; }
  static void store(double* to, V x) { *to = x; }
  static V load(const double* x, std::int64_t /*count*/) { return *x; }
  static void store(double* to, std::int64_t /*count*/, V x) { *to = x; }
  static double sum(V x) { return x; }
};
template <class C>
inline constexpr std::int64_t kLanesOf = Vectors<C>::kLanes;

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
