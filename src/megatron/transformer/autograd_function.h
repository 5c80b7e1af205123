// What our autograd functions share: pointers in the saved context and an anchor that makes a graph when no input requires a gradient.
// Include only in .cpp files (the torch header behind it is heavy).
#pragma once

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

namespace megatron {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// An empty leaf that requires a gradient; functions whose only trained inputs are Parameters take it as an input.
inline at::Tensor gradient_anchor() { return at::empty({0}).set_requires_grad(true); }

template <class T>
void save_pointer(AutogradContext* context, const char* key, T* pointer) {
  context->saved_data[key] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(pointer));
}

template <class T>
T* load_pointer(AutogradContext* context, const char* key) {
  return reinterpret_cast<T*>(static_cast<std::intptr_t>(context->saved_data[key].toInt()));
}

}  // namespace megatron
