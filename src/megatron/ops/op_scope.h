// Makes a kernel of ours, which LibTorch's dispatcher does not see, visible to --profile as an
// operator. Include only in .cpp files (the torch header behind it is heavy).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <functional>
#include <initializer_list>
#include <vector>

namespace megatron {

/// What an operator did, where the shapes of its tensors do not say it.
struct OpCost {
  double flops = 0;  ///< as computed: what a mask leaves out is not counted
  double bytes = 0;  ///< to be read and written at least once each
};

/// An operator on `tensors` (inputs and outputs; undefined ones are passed over) from its
/// construction to its destruction. Costs a look at a thread-local flag when nobody records.
class OpScope {
 public:
  OpScope(const char* name, std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors)
      : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) begin(name, tensors, {});
  }

  /// With its exact cost, which stands in place of what --profile would make of the shapes. `name`
  /// begins with "megatron::".
  OpScope(const char* name, std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors,
          const OpCost& cost)
      : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) begin(name, tensors, {cost.flops, cost.bytes});
  }

 private:
  void begin(const char* name,
             std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors,
             std::initializer_list<double> cost) {
    std::vector<c10::IValue> values;
    for (const at::Tensor& tensor : tensors) values.emplace_back(tensor);
    for (const double number : cost) values.emplace_back(number);
    record_.before(name, &values);
  }

  at::RecordFunction record_;
};

}  // namespace megatron
