// Where the operations of a step come from: kernels on the CPU, or the table that the CUDA plugin
// hands in.
#pragma once

#include <c10/core/Device.h>

#include "kernels/optimizer_operations.h"

namespace megatron {

/// On the CPU, kernels on chunks, shared evenly among the intra-op threads.
const kernels::OptimizerOperations& cpu_optimizer_operations();

/// Called by the CUDA plugin when it is loaded; the table must live as long as the process.
void register_cuda_optimizer_operations(const kernels::OptimizerOperations& operations);

/// The operations for weights on `device`; on ATen's meta device, which has shapes and no numbers,
/// they do nothing.
const kernels::OptimizerOperations& optimizer_operations(c10::Device device);

}  // namespace megatron
