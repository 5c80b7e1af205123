// Reads the features of an x86-64 CPU from CPUID.
#include <cpuid.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/dispatch.h"

namespace megatron::kernels {
namespace {

/// Register bits of CPUID leaf 7 (extended features).
struct ExtendedFeatures {
  unsigned edx0 = 0, eax1 = 0;
};

ExtendedFeatures extended_features() {
  ExtendedFeatures features;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) features.edx0 = edx;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) features.eax1 = eax;
  return features;
}

}  // namespace

bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

bool cpu_has_avx512_bf16() { return cpu_has_avx512() && (extended_features().eax1 >> 5 & 1) != 0; }

bool cpu_has_avx512_fp16() { return cpu_has_avx512() && (extended_features().edx0 >> 23 & 1) != 0; }

bool cpu_has_amx() {
  return cpu_has_avx512_bf16() && (extended_features().edx0 >> 22 & 1) != 0 &&
         (extended_features().edx0 >> 24 & 1) != 0;
}

bool avx2::is_usable() { return cpu_has_avx2(); }
bool avx512::is_usable() { return cpu_has_avx512(); }
bool avx512bf16::is_usable() { return cpu_has_avx512_bf16(); }
bool amx::is_usable() {
  static const bool usable = cpu_has_amx() && amx::passes_self_test();
  return usable;
}

}  // namespace megatron::kernels
