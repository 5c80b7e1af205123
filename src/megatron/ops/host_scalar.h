// Numbers of tensors in the CPU's memory, read where they lie: no operator runs, so code that must
// queue its work without a look at results can be seen to do so.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// The value of a float32 or float64 scalar on the CPU.
double host_scalar(const at::Tensor& scalar);

struct HostRange {
  std::int64_t least = 0, largest = -1;
};
/// Of the elements of an int64 tensor on the CPU; the empty range when it has none.
HostRange host_range(const at::Tensor& numbers);

}  // namespace megatron
