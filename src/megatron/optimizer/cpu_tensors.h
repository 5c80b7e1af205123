// From tensors to the typed pointers that kernels take.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/base/error.h"

namespace megatron {

/// Calls `use.operator()<T>()` with the tensor's element type: float or double.
template <class Use>
void with_scalar_type(const at::Tensor& tensor, const Use& use) {
  if (tensor.scalar_type() == at::kFloat) {
    use.template operator()<float>();
  } else {
    MEGATRON_CHECK(tensor.scalar_type() == at::kDouble, "optimizers keep weights in float32 or float64, not ", tensor.dtype());
    use.template operator()<double>();
  }
}

/// The elements of a contiguous CPU tensor.
template <class T>
T* elements(const at::Tensor& tensor) {
  MEGATRON_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "the CPU optimizer needs contiguous tensors on the CPU, got ", tensor.toString(), " on ",
                 tensor.device());
  return tensor.mutable_data_ptr<T>();
}

}  // namespace megatron
