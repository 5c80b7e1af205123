// Tensors in the shapes of parameters, all in one allocation.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "megatron/transformer/parameter.h"

namespace megatron {

/// One zero tensor of the parameter's local shape for each parameter, where the parameters lie.
std::vector<at::Tensor> flat_tensors(const std::vector<Parameter*>& parameters, at::ScalarType dtype);

}  // namespace megatron
