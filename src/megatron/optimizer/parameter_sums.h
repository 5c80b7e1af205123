// Sums over each parameter of the whole model, taken on the device: every rank measures its pieces,
// and all ranks end with the same numbers, the same to the last bit whatever the slices are.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "kernels/optimizer_operations.h"
#include "megatron/optimizer/sum_layout.h"

namespace megatron {

class ParameterSums {
 public:
  /// Collective over the store's model axis: the parameters of its ranks are numbered together.
  explicit ParameterSums(const ParamStore& store);

  /// Every parameter of the model, in canonical order.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<SumRange>& ranges() const { return ranges_; }
  /// A chunk of `grad`, which lies as the piece of run `index` does, as statistics need it.
  kernels::UpdateChunk chunk(std::size_t index, const at::Tensor& grad) const;
  /// Sets the sums' fields of a plan.
  void fill(kernels::UpdatePlan& plan) const;
  /// Runs `measure` on the plan and leaves each parameter's sum over all ranks in
  /// plan.parameter_sums. Collective over shard and model axis.
  void run(void (*measure)(const kernels::UpdatePlan&), const kernels::UpdatePlan& plan) const;
  /// parameter_sums as a tensor: float64 [names().size()].
  const at::Tensor& result() const { return parameter_sums_; }

 private:
  const ParamStore& store_;
  std::vector<std::string> names_;
  std::vector<SumRange> ranges_;
  at::Tensor slots_, first_slot_, sums_, parameter_sums_;
};

/// The 2-norm, taken in float64, of each parameter of the model, of which tensors[i] holds piece i
/// of the store: in the order of sums.names(). Collective over shard and model axis.
std::vector<double> parameter_norms(const ParameterSums& sums, const ParamStore& store,
                                    const std::vector<at::Tensor>& tensors);

/// This rank's finished gradients, piece by piece.
std::vector<at::Tensor> piece_gradients(const ParamStore& store);

}  // namespace megatron
