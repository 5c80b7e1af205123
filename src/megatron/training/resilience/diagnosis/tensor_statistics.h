// What a diagnosis says about a tensor: size of its numbers, how many are not finite, where the
// first of them is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/params/sharding.h"

namespace megatron {

struct TensorStatistics {
  Shape shape = {};
  std::int64_t num_nan = 0, num_inf = 0;
  double rms = 0, max_abs = 0;  ///< over the finite elements
  Shape first_bad =
      {};  ///< index of the first element that is not finite; empty when all are (or for a scalar)
  bool finite() const { return num_nan + num_inf == 0; }
  std::int64_t num_elements() const;
};

/// Reads every element once; a floating-point tensor on any device.
TensorStatistics tensor_statistics(const at::Tensor& tensor);

/// "3 NaN and 1 Inf among 2048 elements, the first at [5, 1, 12]; the others reach 1.2e+38" or
/// "finite: rms 1.0, max 3.1".
std::string describe(const TensorStatistics& statistics);

/// Positions along `dim` where anything is not finite, ascending.
std::vector<std::int64_t> non_finite_indices(const at::Tensor& tensor, std::int64_t dim);

}  // namespace megatron
