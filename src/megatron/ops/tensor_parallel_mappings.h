// The conjugate pairs of tensor and sequence parallelism (Shoeybi et al. 2019; Korthikanti et al.
// 2022): what happens to activations where a model passes from whole to split and back, and what
// happens to their gradients on the way back. Dimension 0 is the sequence. All are collective over
// the axis, forward and backward, and the identity on an axis of size 1; `what` (a literal) names
// the calls in counters.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/parallel/axis.h"

namespace megatron {

/// x, the same on every rank, for use with split weights. Backward: gradients are summed.
at::Tensor copy_to_tensor_parallel_region(const at::Tensor& x, const Axis& axis, const char* what);

/// The sum of the ranks' parts. Backward: the identity.
at::Tensor reduce_from_tensor_parallel_region(const at::Tensor& x, const Axis& axis,
                                              const char* what);

/// All features [.., n·size] of the ranks' equal parts [.., n]. Backward: this rank's part.
at::Tensor gather_from_tensor_parallel_region(const at::Tensor& x, const Axis& axis,
                                              const char* what);

/// The whole sequence [s, …] of the ranks' slices [s/size, …], for use with split weights.
/// Backward: gradients are summed and split.
at::Tensor gather_from_sequence_parallel_region(const at::Tensor& x, const Axis& axis,
                                                const char* what);

/// This rank's slice of the sum of the ranks' parts [s, …]. Backward: gradients are gathered.
at::Tensor reduce_scatter_to_sequence_parallel_region(const at::Tensor& x, const Axis& axis,
                                                      const char* what);

/// This rank's slice of x [s, …], the same on every rank. Backward: gradients are gathered.
at::Tensor scatter_to_sequence_parallel_region(const at::Tensor& x, const Axis& axis,
                                               const char* what);

}  // namespace megatron
