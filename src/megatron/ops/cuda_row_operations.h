// The row kernels that the CUDA plugin provides.
#pragma once

#include "kernels/row_operations.h"

namespace megatron {

/// Registers `operations`, which must stay valid, as the kernels of CUDA tensors. Called once,
/// after the plugin has been loaded.
void register_cuda_row_operations(const kernels::RowOperations& operations);

/// Returns the registered kernels. They queue work on the current stream and return at once.
const kernels::RowOperations& cuda_row_operations();

}  // namespace megatron
