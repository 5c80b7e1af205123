// Sizes of this CPU's caches, from which kernels choose their blocks.
#pragma once

#include <cstdint>

namespace megatron::kernels {

/// Returns the bytes of a core's L2 cache, or 1 MiB where the system does not report them.
std::int64_t l2_cache_bytes();

}  // namespace megatron::kernels
