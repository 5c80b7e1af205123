// Reads values of CPU tensors directly from memory. No operator runs, so code that must queue its
// work without waiting for results can use these functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// Returns the value of a float32 or float64 scalar. Throws InternalError unless it is on the CPU.
double host_scalar(const at::Tensor& scalar);

/// A closed range of integers; empty when `largest` < `least`.
struct HostRange {
  std::int64_t least = 0, largest = -1;
};
/// Returns the smallest and the largest element of an int64 CPU tensor, or the empty range when the
/// tensor has no elements.
HostRange host_range(const at::Tensor& numbers);

}  // namespace megatron
