// The conjugate pairs of tensor and sequence parallelism (Shoeybi et al. 2019; Korthikanti et al.
// 2022): what enters and leaves a tensor-parallel region in the forward pass, and the conjugate
// operation on the gradient. Dimension 0 is the sequence.
//
// All functions are collective over `axis` in forward and in backward, and are the identity on an
// axis of size 1. `what` is a string literal that names the calls in the communication counters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// Returns x, which is equal on every rank, for use with sharded weights. Backward all-reduces the
/// gradient.
at::Tensor copy_to_tensor_parallel_region(const at::Tensor& x, const Axis& axis, const char* what);

/// All-reduces the partial sums x. Backward is the identity.
at::Tensor reduce_from_tensor_parallel_region(const at::Tensor& x, const Axis& axis,
                                              const char* what);

/// Gathers the features of all ranks, [.., n] to [.., n·size]. Backward returns this rank's part of
/// the gradient.
at::Tensor gather_from_tensor_parallel_region(const at::Tensor& x, const Axis& axis,
                                              const char* what);

/// Gathers the sequence of all ranks, [s/size, …] to [s, …], for use with sharded weights. Backward
/// reduce-scatters the gradient.
at::Tensor gather_from_sequence_parallel_region(const at::Tensor& x, const Axis& axis,
                                                const char* what);

/// Reduce-scatters the partial sums x [s, …] and returns this rank's slice [s/size, …]. Backward
/// all-gathers the gradient.
at::Tensor reduce_scatter_to_sequence_parallel_region(const at::Tensor& x, const Axis& axis,
                                                      const char* what);

/// Returns the lengths of the ranks' slices of a sequence, as even as possible.
std::vector<std::int64_t> sequence_slices(std::int64_t length, const Axis& axis);

/// Returns this rank's slice, of sequence_slices(), of x [s, …], which is equal on every rank.
/// Backward all-gathers the gradient.
at::Tensor scatter_replicated_sequence(const at::Tensor& x, const Axis& axis, const char* what);

/// The reverse: gathers the slices of a sequence of `length`, to [length, …], which every rank uses
/// alike. Backward returns this rank's slice of the gradient.
at::Tensor gather_replicated_sequence(const at::Tensor& x, std::int64_t length, const Axis& axis,
                                      const char* what);

}  // namespace megatron
