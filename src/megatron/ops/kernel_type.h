// Maps ATen's element types to the kernels' element types, and to the types that they compute in.
#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/type.h"

namespace megatron {

/// Returns the kernels' type of `dtype`. Throws InternalError for a dtype that the kernels do not
/// support.
kernels::Type kernel_type(c10::ScalarType dtype);

/// Returns the dtype that accumulates sums and statistics of `storage`: float64 for float64, else
/// float32.
c10::ScalarType compute_type(c10::ScalarType storage);

}  // namespace megatron
