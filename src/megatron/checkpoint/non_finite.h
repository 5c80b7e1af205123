// Counts NaN and infinite values: of weights from a diverged run, or in a type with too small a
// range.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// Returns the number of NaN and infinite elements. It makes one pass without copies when there are
/// none; else it copies a small part at a time.
std::int64_t count_non_finite(const at::Tensor& tensor);

/// Returns "tensor 'name': 3 of 512 values are not finite"; empty when all are finite.
std::string non_finite_error(const std::string& name, const at::Tensor& tensor);

}  // namespace megatron
