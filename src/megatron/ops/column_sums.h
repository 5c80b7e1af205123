// Sums over the rows of a matrix. They are the gradients of biases.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron {

/// Returns the sum over the rows of x [rows, columns], in compute_type(). On the CPU the order of
/// the sum does not depend on the number of threads (kernels/cpu/column_sums.h).
at::Tensor column_sums(const at::Tensor& x);

}  // namespace megatron
