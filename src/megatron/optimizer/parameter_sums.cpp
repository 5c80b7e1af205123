#include "megatron/optimizer/parameter_sums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/optimizer/copy_to_device.h"
#include "megatron/optimizer/optimizer_operations.h"
#include "megatron/parallel/comm.h"
#include "megatron/params/all_parameter_names.h"

namespace megatron {
namespace {

/// Returns each parameter's first slot and the total count. Parameters of other ranks have no
/// slots.
std::vector<std::int64_t> first_slots(const std::vector<std::string>& names,
                                      const ParamStore& store, const SumLayout& layout) {
  std::vector<std::int64_t> first{0};
  std::size_t mine = 0;
  for (const std::string& name : names) {
    if (mine < store.parameters().size() && store.parameters()[mine]->name() == name) ++mine;
    first.push_back(layout.first_slot[mine]);
  }
  return first;
}

}  // namespace

ParameterSums::ParameterSums(const ParamStore& store)
    : store_(store), names_(all_parameter_names(store)) {
  SumLayout layout = sum_layout(store);
  const auto numbers = at::TensorOptions().dtype(at::kDouble).device(store.device());
  slots_ = copy_to_device(layout.slots, store.device());
  first_slot_ = copy_to_device(first_slots(names_, store, layout), store.device());
  sums_ = at::zeros({static_cast<std::int64_t>(layout.slots.size())}, numbers);
  parameter_sums_ = at::zeros({static_cast<std::int64_t>(names_.size())}, numbers);
  ranges_ = std::move(layout.ranges);
}

kernels::UpdateChunk ParameterSums::chunk(std::size_t index, const at::Tensor& grad) const {
  const SumRange& run = ranges_[index];
  const ParameterPiece& piece = store_.pieces()[run.piece];
  MEGATRON_CHECK(grad.is_contiguous() && grad.numel() == piece.count,
                 "an optimizer needs contiguous tensors");
  const SkippedElements skipped = skipped_elements(*piece.parameter);
  const auto within = [&](std::int64_t element) {
    return std::clamp<std::int64_t>(element - piece.first - run.begin, 0, run.count);
  };
  const auto offset = static_cast<std::size_t>(run.begin) * grad.element_size();
  return {.main = nullptr,
          .weight = nullptr,
          .grad = static_cast<const char*>(grad.const_data_ptr()) + offset,
          .state = {},
          .state_scale = {},
          .count = run.count,
          .slot = run.slot,
          .skip_begin = within(skipped.begin),
          .skip_end = within(skipped.end),
          .group = 0,
          .is_decayed = false};
}

void ParameterSums::fill(kernels::UpdatePlan& plan) const {
  plan.table = {.slots = static_cast<const kernels::SumSlot*>(slots_.const_data_ptr()),
                .first_slot = static_cast<const std::int64_t*>(first_slot_.const_data_ptr()),
                .num_parameters = static_cast<std::int64_t>(names_.size())};
  plan.sums = static_cast<double*>(sums_.mutable_data_ptr());
  plan.parameter_sums = static_cast<double*>(parameter_sums_.mutable_data_ptr());
}

void ParameterSums::run(void (*measure)(const kernels::UpdatePlan&),
                        const kernels::UpdatePlan& plan) const {
  const Axis &shard = store_.data_parallel().shard, &model = store_.model_axis();
  if (shard.size > 1) at::Tensor(sums_).zero_();  // slots of other ranks: adding zero is exact
  measure(plan);
  if (shard.size > 1) shard.comm->all_reduce(sums_, "sums over gradients");
  optimizer_operations(store_.device()).reduce_sums(plan);
  if (model.size > 1) model.comm->all_reduce(parameter_sums_, "sums over parameters");
}

std::vector<at::Tensor> piece_gradients(const ParamStore& store) {
  std::vector<at::Tensor> gradients;
  for (const ParameterPiece& piece : store.pieces())
    gradients.push_back(piece.of(piece.parameter->grad()));
  return gradients;
}

std::vector<double> parameter_norms(const ParameterSums& sums, const ParamStore& store,
                                    const std::vector<at::Tensor>& tensors) {
  MEGATRON_CHECK(tensors.size() == store.pieces().size(), "there must be one tensor per piece");
  std::vector<kernels::UpdateChunk> chunks;
  for (std::size_t i = 0; i < sums.ranges().size(); ++i)
    chunks.push_back(sums.chunk(i, tensors[sums.ranges()[i].piece]));
  const at::Tensor table = copy_to_device(chunks, store.device());
  kernels::UpdatePlan plan{
      .chunks = static_cast<const kernels::UpdateChunk*>(table.const_data_ptr()),
      .num_chunks = static_cast<std::int64_t>(chunks.size()),
      .types = {},
      .rules = {},
      .table = {},
      .sums = nullptr,
      .parameter_sums = nullptr,
      .scalars = nullptr};
  if (!tensors.empty()) plan.types.grad = kernel_type(tensors.front().scalar_type());
  sums.fill(plan);
  sums.run(optimizer_operations(store.device()).sum_squares, plan);
  const at::Tensor squares = sums.result().cpu();
  std::vector<double> norms(squares.const_data_ptr<double>(),
                            squares.const_data_ptr<double>() + squares.numel());
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

}  // namespace megatron
