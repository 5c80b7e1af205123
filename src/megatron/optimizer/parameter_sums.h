// Sums over each parameter of the whole model, computed on the device. Every rank sums its pieces;
// all ranks get the same bits, which do not depend on the sharding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/block_sums.h"
#include "kernels/optimizer_operations.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Elements [begin, begin + count) of a piece of this rank; one slot holds their sum.
struct SumRange {
  std::size_t piece;
  std::int64_t begin, count, slot;
};

struct SumLayout {
  std::vector<kernels::SumSlot> slots = {};
  /// Per trained parameter of the store, then the total count.
  std::vector<std::int64_t> first_slot = {};
  std::vector<SumRange> ranges = {};  ///< this rank's ranges, ascending
};

/// Maps elements to the slots that hold their sums (kernels/block_sums.h). The table is the same on
/// every rank with the same weights, whatever slice the rank owns.
SumLayout sum_layout(const ParamStore& store);

class ParameterSums {
 public:
  /// Collective over the store's model axis, whose ranks exchange their parameters' names.
  explicit ParameterSums(const ParamStore& store);

  /// Returns the names of every trained parameter of the model in canonical order.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<SumRange>& ranges() const { return ranges_; }
  /// Returns the statistics of tensors, of which tensors[i] has the layout of piece i; undefined
  /// ones have no chunks. `table` receives the storage of the plan's chunks; both must live as long
  /// as the plan.
  kernels::StatisticsPlan plan(const std::vector<at::Tensor>& tensors, at::Tensor& table) const;
  /// Runs `measure` on `plan` and reduces each parameter's sum over all ranks into
  /// plan.parameter_sums. Collective over the shard and model axes of the store's groups().
  void run(const std::function<void(const kernels::StatisticsPlan&)>& measure,
           const kernels::StatisticsPlan& plan) const;
  /// Returns the reduced sums: float64 [names().size()].
  const at::Tensor& result() const { return parameter_sums_; }
  /// Returns the roots of the reduced sums.
  std::vector<double> norms() const;

 private:
  /// Sums `values` in place over an axis of each group: those at `experts` over the axis of the
  /// experts' group, the others over that of the dense parameters' group.
  void all_reduce(at::Tensor values, const at::Tensor& experts,
                  const Axis& (*axis_of)(const ReplicaGroups&), const char* what) const;

  /// Returns the chunk for range `index`. `tensor` has the layout of the range's piece.
  kernels::GradientChunk chunk(std::size_t index, const at::Tensor& tensor) const;

  const ParamStore& store_;
  std::vector<std::string> names_;
  std::vector<SumRange> ranges_;
  at::Tensor slots_, first_slot_, sums_, parameter_sums_;
  /// Indices in sums_ and parameter_sums_ of experts with groups of their own; else undefined.
  at::Tensor expert_slots_, expert_parameters_;
};

/// Returns the 2-norm of each parameter of the model in the order of sums.names(), computed in
/// float64. tensors[i] holds piece i of the store. Collective over the store's shard and model
/// axes.
std::vector<double> parameter_norms(const ParameterSums& sums, const ParamStore& store,
                                    const std::vector<at::Tensor>& tensors);

/// Returns this rank's finished gradients, one tensor per piece.
std::vector<at::Tensor> piece_gradients(const ParamStore& store);

}  // namespace megatron
