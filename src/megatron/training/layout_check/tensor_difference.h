// Compares a rank's part of a tensor with the whole tensor of the run on one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megatron/params/sharding.h"

namespace megatron {

using NamedTensors = std::map<std::string, at::Tensor>;

/// The largest difference between a part and the whole.
struct TensorDifference {
  double distance = 0;  ///< |found − expected|; NaN counts as infinite
  Shape at = {};        ///< coordinates of it in the whole tensor
  double found = 0, expected = 0;
};

/// Returns the part of `whole` that `indices` select along each dimension; an undefined index
/// selects all.
at::Tensor select(const at::Tensor& whole, const std::vector<at::Tensor>& indices);

/// Compares `part`, whose coordinates in `whole` are `indices` as in select(). Shapes must agree.
TensorDifference difference(const at::Tensor& part, const at::Tensor& whole,
                            const std::vector<at::Tensor>& indices);

/// Compares the slices of `local` with those of `whole` and returns the largest difference.
TensorDifference difference(const at::Tensor& local, const at::Tensor& whole,
                            const std::vector<TensorSlice>& slices);

/// Returns the largest absolute value of a tensor; 0 if it is empty.
double largest_magnitude(const at::Tensor& tensor);

/// Copies the slices of `local` to their places in `whole`.
void copy_slices(const at::Tensor& local, const std::vector<TensorSlice>& slices,
                 const at::Tensor& whole);

}  // namespace megatron
