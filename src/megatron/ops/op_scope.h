// Makes our own kernels, which bypass LibTorch's dispatcher, visible to --profile as operators.
// Include this header only in .cpp files, because the torch header behind it is heavy.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <functional>
#include <initializer_list>
#include <vector>

namespace megatron {

/// The exact cost of an operator, for kernels whose cost does not follow from their tensors'
/// shapes.
struct OpCost {
  double flops = 0;  ///< operations performed; masked elements are not counted
  double bytes = 0;  ///< bytes that must be read and written at least once
};

/// Records an operator from construction to destruction. `tensors` are its inputs and outputs;
/// undefined tensors are skipped. Without a profiler it costs one check of a thread-local flag.
class OpScope {
 public:
  OpScope(const char* name, std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors)
      : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) begin(name, tensors, {});
  }

  /// Also records the exact cost, which --profile then uses in place of an estimate from the
  /// shapes. `name` must begin with "megatron::".
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
