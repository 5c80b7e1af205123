// Working memory of the kernels that copy their operands together.
#pragma once

#include <cstdint>

namespace megatron {

/// At least `bytes` of this thread's own, aligned to a page, for one kernel at a time: the next
/// call gives the same memory. It outlives the kernel so that what is packed into it stays in this
/// thread's L2 cache; memory that a tensor had in between would have to come from afar first.
void* thread_workspace(std::int64_t bytes);

}  // namespace megatron
