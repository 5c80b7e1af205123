// Operators of ours in LibTorch's dispatcher: a schema, a kernel per device, and typed calls. A
// program that loads the library sees them as torch.ops.megatron.*, and every profiler by name.
// Include only in .cpp files (the torch header behind it is heavy).
#pragma once

#include <torch/library.h>

#include <string>
#include <string_view>

namespace megatron {

/// Declares an operator of namespace `megatron`. differentiable() records gradients around the
/// call, so the dispatcher's own autograd passes through.
inline void define_operator(torch::Library& library, const char* schema) {
  library.def(schema);
  const std::string_view text = schema;
  const std::string name(text.substr(0, text.find('(')));
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, torch::CppFunction::makeFallthrough()));
}

/// Registers `kernel` for tensors of one device.
template <class Kernel>
void register_kernel(torch::Library& library, const char* name, c10::DispatchKey key,
                     Kernel&& kernel) {
  library.impl(name, torch::dispatch(key, std::forward<Kernel>(kernel)));
}

/// The device for which plain ATen operations stand in: all that have no kernel of their own, also
/// the meta device, which computes shapes only.
inline constexpr c10::DispatchKey kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;

/// The operator `name` ("megatron::…") with its C++ signature; keep it in a static variable.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// An optional tensor argument as an undefined tensor.
inline at::Tensor tensor_or_none(const std::optional<at::Tensor>& tensor) {
  return tensor ? *tensor : at::Tensor();
}

/// An undefined tensor as an absent argument.
inline std::optional<at::Tensor> optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace megatron
