// How many bytes tensors hold: counted by an allocator of our own on a CPU, asked of the caching allocator on a GPU.
#pragma once

#include <c10/core/Device.h>

namespace megatron {

struct TensorMemory {
  double live_bytes = 0;      ///< held by tensors now
  double peak_bytes = 0;      ///< most since the peak was last forgotten
  double reserved_bytes = 0;  ///< held by the caching allocator of a GPU, in use or not; 0 on a CPU
};

/// From now on counts what tensors on the CPU allocate. Call before the first tensor that is to be counted; costs one atomic addition per
/// allocation.
void start_counting_tensor_memory();

/// Zeros on a CPU that is not counted.
TensorMemory tensor_memory(c10::Device device);

/// The peak becomes what is live now.
void forget_peak_tensor_memory(c10::Device device);

}  // namespace megatron
