// How many bytes tensors hold: counted by an allocator of our own on a CPU, asked of the caching
// allocator on a GPU.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace megatron {

struct TensorMemory {
  double allocated_bytes = 0;  ///< held by tensors now
  double peak_bytes = 0;       ///< most since the peak was last reset
  double reserved_bytes = 0;   ///< held by the caching allocator, in use or not
};

/// From now on tensors on the CPU get memory that freed tensors leave behind
/// (base/cpu_caching_allocator.h) instead of the C library's, and are counted. Call before the
/// first tensor; calling again does nothing.
void use_caching_cpu_allocator();

/// Zeros on a CPU whose memory is not reused.
TensorMemory tensor_memory(c10::Device device);

/// The peak becomes what is live now.
void reset_peak_tensor_memory(c10::Device device);

/// How often the memory of CPU tensors was asked for since the start.
struct TensorAllocations {
  std::int64_t tensors = 0;  ///< by tensors
  std::int64_t system =
      0;  ///< by the allocator, of the system; steps after the first ones need none
};

TensorAllocations tensor_allocations();

/// Hands the system what freed CPU tensors left behind; the next tensors pay for it again.
void empty_tensor_cache();

}  // namespace megatron
