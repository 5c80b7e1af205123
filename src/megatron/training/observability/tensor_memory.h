// Reports how many bytes tensors hold, from our own allocator on a CPU and from the caching
// allocator on a GPU, and how much memory this process holds by the kernel's counters.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "megatron/metrics/step_metrics.h"

namespace megatron {

struct TensorMemory {
  double allocated_bytes = 0;  ///< held by tensors now
  double peak_bytes = 0;       ///< maximum since the last reset of the peak
  double reserved_bytes = 0;   ///< held by the caching allocator, in use or not
};

/// Installs the caching CPU allocator (base/cpu_caching_allocator.h), which reuses the memory of
/// freed tensors and counts allocations. Call it before the first tensor is created; further calls
/// do nothing.
void use_caching_cpu_allocator();

/// Keeps freed memory in the process, because each step allocates what the previous one freed, and
/// returning pages to the system would cause new page faults. Tensors that are created from now on
/// use the caching CPU allocator.
void keep_freed_memory();

/// Returns the memory of tensors on `device`; zeros on a CPU without the caching allocator.
TensorMemory tensor_memory(c10::Device device);

/// Returns whether `address` lies in the heaps of the caching CPU allocator.
bool is_tensor_memory(const void* address);

/// Resets the peak to the bytes in use now.
void reset_peak_tensor_memory(c10::Device device);

/// Number of CPU memory allocations since the start of the process.
struct TensorAllocations {
  std::int64_t tensors = 0;  ///< allocations by tensors
  /// Allocations by the allocator from the system; none after the first steps.
  std::int64_t system = 0;
};

TensorAllocations tensor_allocations();

/// Returns cached CPU memory to the system. The next tensors must allocate it again.
void empty_tensor_cache();

/// Returns the memory that the process holds on `device` now.
MemoryMetrics process_memory(c10::Device device);

/// Returns `[Rank 0] (after N iterations) memory (MB) | resident: … | max resident: …`, or on a GPU
/// Megatron's ` | allocated: … | max allocated: … | reserved: … | max reserved: …`. With
/// --log-device-memory-used (`with_device_total`) adds ` | total device memory used: …`.
std::string memory_line(std::int64_t iterations, c10::Device device, bool with_device_total);

}  // namespace megatron
