// Selects the operations of an optimizer step by device: CPU kernels, or the table that the CUDA
// plugin registers.
#pragma once

#include <c10/core/Device.h>

#include "kernels/optimizer_operations.h"

namespace megatron {

/// Registers the operations for CUDA devices. The CUDA plugin calls this when it is loaded;
/// `operations` must live as long as the process.
void register_cuda_optimizer_operations(const kernels::OptimizerOperations& operations);

/// Returns the operations for weights on `device`. The operations for ATen's meta device, whose
/// tensors have no data, do nothing.
const kernels::OptimizerOperations& optimizer_operations(c10::Device device);

}  // namespace megatron
