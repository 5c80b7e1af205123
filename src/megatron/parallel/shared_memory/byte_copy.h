// Copies bytes between tensors and shared memory, through the caches or with non-temporal stores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megatron {

enum class CopyMode : std::uint8_t {
  cached,
  /// Writes to memory without reading or caching the target. Other threads see the data after
  /// non_temporal_fence().
  non_temporal,
};

/// Copies `bytes` bytes. `to` and `from` must be equal (then nothing is copied) or must not
/// overlap.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes,
                CopyMode mode = CopyMode::cached);

}  // namespace megatron
