// Numbers that are not finite: weights of a run that diverged, or of a type too narrow for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// How many elements are NaN or infinite. One pass without copies when there are none;
/// else copies of a small part at a time.
std::int64_t count_non_finite(const at::Tensor& tensor);

/// "tensor 'name': 3 of 512 values are not finite"; empty when all are finite.
std::string non_finite_error(const std::string& name, const at::Tensor& tensor);

}  // namespace megatron
