// From ATen's element types to the kernels'.
#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/type.h"

namespace megatron {

/// The kernels' name of an element type; InternalError for one they do not work on.
kernels::Type kernel_type(c10::ScalarType dtype);

}  // namespace megatron
