// Defines our operators in LibTorch's dispatcher: a schema, a kernel per device and a typed call. A
// program that loads the library sees them as torch.ops.megatron.*, and every profiler shows their
// names. Include this header only in .cpp files, because the torch header behind it is heavy.
#pragma once

#include <torch/library.h>

#include <string>
#include <string_view>

namespace megatron {

/// Defines an operator in the namespace `megatron`. differentiable() records gradients around the
/// call, so the dispatcher's autograd key falls through.
inline void define_operator(torch::Library& library, const char* schema) {
  library.def(schema);
  const std::string_view text = schema;
  const std::string name(text.substr(0, text.find('(')));
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, torch::CppFunction::makeFallthrough()));
}

/// Registers `kernel` for tensors of one dispatch key.
template <class Kernel>
void register_kernel(torch::Library& library, const char* name, c10::DispatchKey key,
                     Kernel&& kernel) {
  library.impl(name, torch::dispatch(key, std::forward<Kernel>(kernel)));
}

/// The dispatch key of kernels made of plain ATen operators. They serve every device without its
/// own kernel, including the meta device, which computes shapes only.
inline constexpr c10::DispatchKey kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;

/// Returns the typed handle of operator `name` ("megatron::…"). Callers keep it in a static
/// variable.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// Converts an optional tensor argument to a tensor, undefined when absent.
inline at::Tensor tensor_or_none(const std::optional<at::Tensor>& tensor) {
  return tensor ? *tensor : at::Tensor();
}

/// Converts a tensor to an optional argument, absent when undefined.
inline std::optional<at::Tensor> optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace megatron
