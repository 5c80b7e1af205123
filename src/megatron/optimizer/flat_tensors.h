// Tensors in the shapes of parameters, all in one allocation.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/type.h"
#include "megatron/transformer/parameter.h"

namespace megatron {

/// One zero tensor of the parameter's local shape for each parameter, where the parameters lie.
std::vector<at::Tensor> flat_tensors(const std::vector<Parameter*>& parameters, at::ScalarType dtype);

/// The kernels' name of an element type; InternalError for one they do not work on.
kernels::Type kernel_type(at::ScalarType dtype);

}  // namespace megatron
