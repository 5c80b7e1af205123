#include "megatron/optimizer/flat_tensors.h"

#include <ATen/ops/zeros.h>

#include "megatron/base/error.h"

namespace megatron {

std::vector<at::Tensor> flat_tensors(const std::vector<Parameter*>& parameters, at::ScalarType dtype) {
  constexpr std::int64_t kAlignment = 16;
  std::vector<std::int64_t> offsets;
  std::int64_t size = 0;
  for (const Parameter* parameter : parameters) {
    offsets.push_back(size);
    size += (parameter->value().numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::vector<at::Tensor> tensors;
  if (parameters.empty()) return tensors;
  const at::Tensor flat = at::zeros({size}, parameters.front()->value().options().dtype(dtype));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& value = parameters[i]->value();
    tensors.push_back(flat.narrow(0, offsets[i], value.numel()).view(value.sizes()));
  }
  return tensors;
}

kernels::Type kernel_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return kernels::Type::f32;
    case at::kDouble:
      return kernels::Type::f64;
    case at::kBFloat16:
      return kernels::Type::bf16;
    case at::kHalf:
      return kernels::Type::f16;
    default:
      throw InternalError(std::string("optimizers do not work on ") + c10::toString(dtype));
  }
}

}  // namespace megatron
