// Sums over the rows of a matrix: gradients of biases.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Σ over rows of x [rows, columns] in compute_type. On the CPU in one order, whatever the number
/// of threads (kernels/cpu/column_sums.h).
at::Tensor column_sums(const at::Tensor& x);

}  // namespace megatron
