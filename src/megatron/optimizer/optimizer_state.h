// One kind of optimizer state (exp_avg, …) for every piece of a rank, stored in float32, float64,
// bfloat16 or block-scaled float16.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "megatron/params/param_store.h"

namespace megatron {

class OptimizerState {
 public:
  /// `flat` holds the state of `piece`, flattened to one dimension.
  using Visitor =
      std::function<void(const ParameterPiece& piece, const std::string& state, at::Tensor& flat)>;

  /// Creates states of zeros for the pieces of the parameters that `selects` selects. A float16
  /// state has a scale, a power of two, for each kernels::kStateBlock elements of a parameter.
  OptimizerState(std::string name, const ParamStore& store, at::ScalarType dtype,
                 const std::function<bool(const Parameter&)>& selects);

  const std::string& name() const { return name_; }
  at::ScalarType dtype() const { return dtype_; }
  /// Returns one flat tensor per piece of the store; undefined for pieces that are not selected.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Returns the scales, one tensor per piece; empty unless the state is float16.
  const std::vector<at::Tensor>& scales() const { return scales_; }
  std::int64_t num_bytes() const;
  /// Calls `visitor` for each piece with its state, which the visitor may read and fill. A float16
  /// state is passed as a float32 tensor; the conversion keeps its values unchanged.
  void visit(const Visitor& visitor);

 private:
  void visit_scaled(std::size_t index, const Visitor& visitor);

  std::string name_;
  std::vector<ParameterPiece> pieces_;
  at::ScalarType dtype_;
  std::vector<at::Tensor> storage_;  ///< The storage of all states, then that of all scales.
  std::vector<at::Tensor> tensors_, scales_;
};

}  // namespace megatron
