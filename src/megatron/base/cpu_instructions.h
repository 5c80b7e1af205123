// What a CPU offers beyond C++: a hint for spin-waits, stores that bypass the caches, and wider
// vectors than the compiler may assume. This is the only header of the rooms that distinguishes
// x86-64 and ARM; elsewhere the plain C++ is used.
#pragma once

#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace megatron {

/// Size of a cache line in bytes, on x86-64 and on ARM servers.
inline constexpr std::size_t kCacheLine = 64;

/// Tells the CPU that the caller polls memory, so that it delays the next poll and saves power.
inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does not delay on most cores
#endif
}

/// Copies one cache line without reading or caching the target, if the CPU can. `to` must be
/// aligned to a line. Other threads see the line after non_temporal_fence().
inline void copy_line_non_temporal(void* to, const void* from) {
#if defined(__x86_64__)
  const auto* source = static_cast<const __m128i*>(from);
  auto* target = static_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
#else
  std::memcpy(to, from, kCacheLine);
#endif
}

/// Orders copy_line_non_temporal() before later stores. A release store does not do so on x86-64.
inline void non_temporal_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

/// The function Body::run(argument), compiled for each vector width. Body::run must be
/// [[gnu::always_inline]] with all that it calls, because only so does it take on the width.
template <class Body, class Argument>
struct VectorClones {
  using Function = void (*)(const Argument&);

  static void baseline(const Argument& argument) { Body::run(argument); }
#if defined(__x86_64__)
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void avx512(
      const Argument& argument) {
    Body::run(argument);
  }
  [[gnu::target("avx2")]] static void avx2(const Argument& argument) { Body::run(argument); }
#endif

  /// Returns the clone for the widest vectors of this CPU.
  static Function widest() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return avx512;
    if (__builtin_cpu_supports("avx2")) return avx2;
#endif
    return baseline;
  }
};

}  // namespace megatron
