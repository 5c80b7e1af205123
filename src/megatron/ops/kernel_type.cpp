#include "megatron/ops/kernel_type.h"

#include <string>

#include "megatron/base/error.h"

namespace megatron {

kernels::Type kernel_type(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kFloat:
      return kernels::Type::f32;
    case c10::kDouble:
      return kernels::Type::f64;
    case c10::kBFloat16:
      return kernels::Type::bf16;
    case c10::kHalf:
      return kernels::Type::f16;
    default:
      throw InternalError(std::string("kernels do not work on ") + c10::toString(dtype));
  }
}

c10::ScalarType compute_type(c10::ScalarType storage) {
  return storage == c10::kDouble ? c10::kDouble : c10::kFloat;
}

}  // namespace megatron
