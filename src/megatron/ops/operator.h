// Defines our operators in LibTorch's dispatcher: a kernel per device and a typed call. A program
// that loads the library sees them as torch.ops.megatron.*, and every profiler shows their names.
// Include this header only in .cpp files, because the torch header behind it is heavy.
//
// The dispatcher knows no structs. A kernel takes and returns them all the same if they list their
// members: these are the operator's arguments in that order, and a struct may contain others. A
// tensor in a struct may be undefined; one that is a parameter by itself must not be.
//
//   struct NormParams {
//     at::Tensor weight, bias;
//     double epsilon = 1e-5;
//     static auto members(auto& p) { return std::tie(p.weight, p.bias, p.epsilon); }
//   };
//   at::Tensor norm_on_cpu(const at::Tensor& x, const NormParams& params);
//
//   define_operator<norm_on_cpu>(library, "norm");
//   static const Operator<norm_on_cpu> op("megatron::norm");
//   const at::Tensor y = op(x, {weight, bias});
#pragma once

#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace megatron {

/// Converts an optional tensor argument to a tensor, undefined when absent.
inline at::Tensor tensor_or_none(const std::optional<at::Tensor>& tensor) {
  return tensor ? *tensor : at::Tensor();
}

/// Converts a tensor to an optional argument, absent when undefined.
inline std::optional<at::Tensor> optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

namespace operator_arguments {

template <class T>
concept HasMembers = requires(T& value) {
  T::members(value);
};

/// Returns the arguments that a parameter of a kernel becomes.
template <bool is_member, class T>
auto packed(const T& value) {
  if constexpr (HasMembers<T>) {
    return std::apply(
        [](const auto&... members) { return std::tuple_cat(packed<true>(members)...); },
        T::members(value));
  } else if constexpr (is_member && std::is_same_v<T, at::Tensor>) {
    return std::tuple(optional_tensor(value));
  } else if constexpr (std::is_same_v<T, std::uint64_t> ||
                       (std::is_enum_v<T> && !std::is_same_v<T, c10::ScalarType>)) {
    return std::tuple(static_cast<std::int64_t>(value));
  } else {
    return std::tuple(value);
  }
}

/// Fills parameters from the arguments from number `first` on.
template <std::size_t first, class Arguments, class T, class... Rest>
void unpack(const Arguments& arguments, T& value, Rest&... rest) {
  if constexpr (HasMembers<T>) {
    std::apply([&](auto&... members) { unpack<first>(arguments, members...); }, T::members(value));
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    value = tensor_or_none(std::get<first>(arguments));
  } else {
    value = static_cast<T>(std::get<first>(arguments));
  }
  constexpr std::size_t kCount = std::tuple_size_v<decltype(packed<true>(std::as_const(value)))>;
  if constexpr (sizeof...(Rest) > 0) unpack<first + kCount>(arguments, rest...);
}

template <class T>
using Passed = std::conditional_t<
    std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::optional<at::Tensor>>, const T&, T>;

/// Returns the function of plain arguments that stands for `kernel` in the dispatcher.
template <auto kernel, class R, class... A>
constexpr auto plain(R (*)(A...)) {
  const auto with_arguments = []<class... T>(const std::tuple<T...>*) {
    return +[](Passed<T>... arguments) {
      std::tuple<std::remove_cvref_t<A>...> parameters;
      std::apply([&](auto&... values) { unpack<0>(std::tie(arguments...), values...); },
                 parameters);
      if constexpr (HasMembers<R>) {
        R result = std::apply(kernel, parameters);
        return std::apply([](auto&... tensors) { return std::tuple(std::move(tensors)...); },
                          R::members(result));
      } else {
        return std::apply(kernel, parameters);
      }
    };
  };
  using Arguments =
      decltype(std::tuple_cat(packed<false>(std::declval<const std::remove_cvref_t<A>&>())...));
  return with_arguments(static_cast<const Arguments*>(nullptr));
}
template <auto kernel>
inline constexpr auto kPlain = plain<kernel>(kernel);

}  // namespace operator_arguments

/// The dispatch key of kernels made of plain ATen operators. They serve every device without its
/// own kernel, as a rule the meta device too, which computes shapes only.
inline constexpr c10::DispatchKey kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;
/// The dispatch key of kernels that only allocate results, of the same sizes and storages as the
/// CPU's. An operator has one if ATen lacks an operator on the meta device, or if it takes long.
inline constexpr c10::DispatchKey kMetaDevice = c10::DispatchKey::Meta;

/// Registers `kernel` for tensors of one dispatch key.
template <auto kernel>
void register_kernel(torch::Library& library, const char* name, c10::DispatchKey key) {
  library.impl(name, torch::dispatch(key, operator_arguments::kPlain<kernel>));
}

/// Defines an operator in the namespace `megatron` by the kernel of the CPU. `schema` is a name,
/// with arguments and results if these alias each other. A Recording records gradients around the
/// call, so the dispatcher's autograd key falls through.
template <auto on_cpu>
void define_operator(torch::Library& library, const char* schema) {
  library.def(schema, torch::dispatch(c10::DispatchKey::CPU, operator_arguments::kPlain<on_cpu>));
  const std::string_view text = schema;
  const std::string name(text.substr(0, text.find('(')));
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, torch::CppFunction::makeFallthrough()));
}

/// Calls an operator, by its name "megatron::…", with the parameters of its kernels, of which
/// `kernel` is one. Callers keep it in a static variable.
template <auto kernel, class Function = decltype(kernel)>
class Operator;
template <auto kernel, class R, class... A>
class Operator<kernel, R (*)(A...)> {
 public:
  explicit Operator(const char* name)
      : handle_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>()) {}

  R operator()(const std::remove_cvref_t<A>&... values) const {
    const auto call = [this](const auto&... arguments) { return handle_.call(arguments...); };
    const auto arguments = std::tuple_cat(operator_arguments::packed<false>(values)...);
    if constexpr (operator_arguments::HasMembers<R>) {
      R result;
      R::members(result) = std::apply(call, arguments);
      return result;
    } else {
      return std::apply(call, arguments);
    }
  }

 private:
  using Signature = std::remove_pointer_t<decltype(operator_arguments::kPlain<kernel>)>;
  c10::TypedOperatorHandle<Signature> handle_;
};

}  // namespace megatron
