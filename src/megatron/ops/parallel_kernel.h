// Runs CPU kernels on ATen's thread pool, with a workspace for each thread. Include this header
// only in .cpp files, because the header behind it is heavy.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace megatron {

/// Returns the memory of a tensor, null if it is undefined.
inline const void* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr() : nullptr;
}
inline void* mutable_or_null(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr() : nullptr;
}

/// Returns x, or a copy of it, with elements side by side along the last dimension.
inline at::Tensor with_unit_stride(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

/// Calls kernel(arguments, begin, end) in parallel on ranges that cover [0, count). A unit stands
/// for `elements_each` elements. Ranges are multiples of `multiple` units, and large enough to be
/// worth a thread.
template <class Arguments>
void parallel_kernel(void (*kernel)(const Arguments&, std::int64_t, std::int64_t),
                     const Arguments& arguments, std::int64_t count, std::int64_t elements_each,
                     std::int64_t multiple = 1) {
  constexpr std::int64_t kGrainElements = 16384;
  const std::int64_t groups = (count + multiple - 1) / multiple,
                     elements = elements_each * multiple;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(elements, 1));
  at::parallel_for(0, groups, grain, [&](std::int64_t begin, std::int64_t end) {
    kernel(arguments, begin * multiple, std::min(end * multiple, count));
  });
}

/// Calls run(unit) for each unit in [0, count) on `threads` threads. A thread takes the next unit
/// as soon as it is free, because cores may differ in speed or be preempted.
template <class Run>
void dynamic_parallel_for(std::int64_t count, std::int64_t threads, const Run& run) {
  std::atomic<std::int64_t> next = 0;
  at::parallel_for(0, threads, 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t unit = next++; unit < count; unit = next++) run(unit);
  });
}

/// Returns at least `bytes` bytes owned by the calling thread, aligned to a page. Only one kernel
/// of a thread may use them at a time, because the next call returns the same memory. The memory
/// outlives the kernel so that packed panels stay in the thread's L2 cache.
void* thread_workspace(std::int64_t bytes);

/// Returns the bytes of the workspaces of all threads.
std::int64_t thread_workspace_bytes();

}  // namespace megatron
