// Maps ATen's element types to the kernels' element types.
#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/type.h"

namespace megatron {

/// Returns the kernels' type of `dtype`. Throws InternalError for a dtype that the kernels do not
/// support.
kernels::Type kernel_type(c10::ScalarType dtype);

}  // namespace megatron
