// Copies of bytes between tensors and memory that ranks share, through the caches or past them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megatron {

enum class CopyMode : std::uint8_t {
  cached,
  non_temporal,  ///< the target goes to memory without being read or kept in a cache; others see it
                 ///< after store_fence()
};

/// Nothing happens where `to` and `from` are the same; else they do not overlap.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes,
                CopyMode mode = CopyMode::cached);

/// Called after non-temporal copies and before whatever tells another thread of them: they are not
/// ordered by a release store.
void store_fence();

}  // namespace megatron
