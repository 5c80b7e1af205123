// Makes a kernel of ours, which LibTorch's dispatcher does not see, visible to --profile as an operator.
// Include only in .cpp files (the torch header behind it is heavy).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <functional>
#include <initializer_list>
#include <vector>

namespace megatron {

/// An operator on `tensors` (inputs and outputs; undefined ones are passed over) from its construction to its destruction. Costs a look at a
/// thread-local flag when nobody records.
class OpScope {
 public:
  OpScope(const char* name, std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors) : record_(at::RecordScope::FUNCTION) {
    if (!record_.isActive()) return;
    std::vector<c10::IValue> values;
    for (const at::Tensor& tensor : tensors) values.emplace_back(tensor);
    record_.before(name, &values);
  }

 private:
  at::RecordFunction record_;
};

}  // namespace megatron
