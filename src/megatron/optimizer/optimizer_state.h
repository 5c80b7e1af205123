// One kind of state (exp_avg, …) for every parameter, in float32, float64, bfloat16 or block-scaled float16.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "megatron/transformer/parameter.h"

namespace megatron {

class OptimizerState {
 public:
  using Visitor = std::function<void(const Parameter&, const std::string& state, at::Tensor& tensor)>;

  /// All zero. float16 states have a scale, a power of two, for each kernels::kStateBlock elements of a parameter.
  OptimizerState(std::string name, const std::vector<Parameter*>& parameters, at::ScalarType dtype);

  at::ScalarType dtype() const { return dtype_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Empty unless the state is float16.
  const std::vector<at::Tensor>& scales() const { return scales_; }
  /// Calls `visitor` for each parameter with its state, which it may read and fill: the state itself, or a float32 tensor for float16 states,
  /// whose values survive unchanged.
  void visit(const Visitor& visitor);

 private:
  void visit_scaled(std::size_t index, const Visitor& visitor);

  std::string name_;
  std::vector<Parameter*> parameters_;
  at::ScalarType dtype_;
  std::vector<at::Tensor> tensors_, scales_;
};

}  // namespace megatron
