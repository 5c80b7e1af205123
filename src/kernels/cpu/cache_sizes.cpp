#include "kernels/cpu/cache_sizes.h"

#include <unistd.h>

namespace megatron::kernels {

std::int64_t l2_cache_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  static const std::int64_t bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  static const std::int64_t bytes = 0;
#endif
  return bytes > 0 ? bytes : std::int64_t{1} << 20;
}

}  // namespace megatron::kernels
