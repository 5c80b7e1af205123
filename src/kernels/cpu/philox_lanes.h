// Philox4x32-10 in sixteen lanes (megatron/base/philox.h is the definition). Included once per instruction set inside the namespace
// MEGATRON_KERNEL_ISA.
#pragma once

#include <cstdint>

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr int kLanes = 16;

/// Sixteen consecutive Philox blocks (64 draws) of one ordinal; draws[4·i + lane] belongs to element 4·(block + i) + lane.
inline void draw_blocks(std::uint64_t key, std::uint64_t block, std::uint64_t ordinal, std::uint32_t* draws) {
  std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = static_cast<std::uint32_t>(block + i);
    c1[i] = static_cast<std::uint32_t>((block + i) >> 32);
    c2[i] = static_cast<std::uint32_t>(ordinal);
    c3[i] = static_cast<std::uint32_t>(ordinal >> 32);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c0[i] = n0;
      c1[i] = static_cast<std::uint32_t>(p1);
      c2[i] = n2;
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < kLanes; ++i) {
    draws[4 * i] = c0[i];
    draws[4 * i + 1] = c1[i];
    draws[4 * i + 2] = c2[i];
    draws[4 * i + 3] = c3[i];
  }
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
