// Sums over rows: gradients of biases and of weights that every row contributes to.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// The dtype in which sums and statistics of `storage` are kept: float64 for float64, else float32.
c10::ScalarType compute_type(c10::ScalarType storage);

/// Returns Σ over the rows of x [rows, columns] in compute_type, in one order on every number of
/// threads.
at::Tensor column_sums(const at::Tensor& x);

/// Returns Σ over the first dimension of blocks [blocks, columns] on the CPU, each of which is the
/// sum over a block of rows.
at::Tensor reduce_row_blocks(const at::Tensor& blocks);

}  // namespace megatron
