// Per-thread workspace of kernels that pack their operands.
#pragma once

#include <cstdint>

namespace megatron {

/// Returns at least `bytes` bytes owned by the calling thread, aligned to a page. Only one kernel
/// of a thread may use them at a time, because the next call returns the same memory. The memory
/// outlives the kernel so that packed panels stay in the thread's L2 cache.
void* thread_workspace(std::int64_t bytes);

/// Returns the bytes of the workspaces of all threads.
std::int64_t thread_workspace_bytes();

}  // namespace megatron
