#include "megatron/optimizer/flat_tensors.h"

#include <ATen/ops/zeros.h>

#include "megatron/transformer/flat_layout.h"

namespace megatron {

std::vector<at::Tensor> flat_tensors(const std::vector<Parameter*>& parameters, at::ScalarType dtype) {
  std::vector<at::Tensor> tensors;
  if (parameters.empty()) return tensors;
  const FlatLayout layout = flat_layout(parameters);
  const at::Tensor flat = at::zeros({layout.size}, parameters.front()->value().options().dtype(dtype));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& value = parameters[i]->value();
    tensors.push_back(flat.narrow(0, layout.offsets[i], value.numel()).view(value.sizes()));
  }
  return tensors;
}

}  // namespace megatron
