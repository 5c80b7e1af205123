// One kind of state (exp_avg, …) for every piece of a rank, in float32, float64, bfloat16 or
// block-scaled float16.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "megatron/params/param_store.h"

namespace megatron {

class OptimizerState {
 public:
  /// `flat` is of the piece, one element after the other.
  using Visitor =
      std::function<void(const ParameterPiece& piece, const std::string& state, at::Tensor& flat)>;

  /// All zero. float16 states have a scale, a power of two, for each kernels::kStateBlock elements
  /// of a parameter.
  OptimizerState(std::string name, const ParamStore& store, at::ScalarType dtype);

  const std::string& name() const { return name_; }
  at::ScalarType dtype() const { return dtype_; }
  /// One for each piece, flat.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Empty unless the state is float16.
  const std::vector<at::Tensor>& scales() const { return scales_; }
  std::int64_t num_bytes() const;
  /// Calls `visitor` for each piece with its state, which it may read and fill: the state itself,
  /// or a float32 tensor for float16 states, whose values survive unchanged.
  void visit(const Visitor& visitor);

 private:
  void visit_scaled(std::size_t index, const Visitor& visitor);

  std::string name_;
  std::vector<ParameterPiece> pieces_;
  at::ScalarType dtype_;
  std::vector<at::Tensor> buckets_;  ///< all storage: states, then scales
  std::vector<at::Tensor> tensors_, scales_;
};

}  // namespace megatron
