// Philox4x32-10 on the device. It gives the same numbers as base/philox.h for the same coordinates,
// which tests/kernels checks.
#pragma once

#include <cstdint>

#include "kernels/cuda/portable.h"

namespace megatron::kernels::cuda {

struct PhiloxWords {
  std::uint32_t lane[4];
};

/// Returns the draws of elements 4·block … 4·block + 3 at `ordinal`.
MEGATRON_HOST_DEVICE inline PhiloxWords philox_block(std::uint64_t key, std::uint64_t block,
                                                     std::uint64_t ordinal) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block),
                c1 = static_cast<std::uint32_t>(block >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(ordinal),
                c3 = static_cast<std::uint32_t>(ordinal >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace megatron::kernels::cuda
