// Sums over rows. They are the gradients of biases and of other weights to which every row
// contributes.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Returns the sum over the rows of x [rows, columns] in compute_type(). The order of the sum does
/// not depend on the number of threads.
at::Tensor column_sums(const at::Tensor& x);

/// Returns the sum over the first dimension of [blocks, columns] on the CPU, where each row is
/// already the sum over a block of rows.
at::Tensor reduce_row_blocks(const at::Tensor& blocks);

}  // namespace megatron
