// Reads values of CPU tensors directly from memory. No operator runs, so code that must queue its
// work without waiting for results can use these functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// Returns the value of a float32 or float64 scalar. Throws InternalError unless it is on the CPU.
double host_scalar(const at::Tensor& scalar);

/// Returns whether two scalars of float32 or float64 on the CPU have different values; two NaNs are
/// equal. Returns false on another device, where reading them would wait.
bool is_known_to_differ(const at::Tensor& a, const at::Tensor& b);

/// A closed range of integers; empty when `largest` < `least`.
struct HostRange {
  std::int64_t least = 0, largest = -1;
};
/// Returns the smallest and the largest element of an int64 CPU tensor, or the empty range when the
/// tensor has no elements or is on another device, where reading it would wait.
HostRange host_range(const at::Tensor& numbers);

}  // namespace megatron
