#include "megatron/params/tensor_parallel_gradients.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/parallel/comm.h"

namespace megatron {
namespace {

/// Returns the range of elements that a slice of whole rows covers in the flattened local tensor.
std::pair<std::int64_t, std::int64_t> flat_range(const TensorSlice& box,
                                                 const Parameter& parameter) {
  MEGATRON_CHECK(parameter.sharding().split_dim == 0, parameter.name(),
                 " shares blocks that are not rows");
  const std::int64_t row = num_elements(box.shape) / box.shape[0];
  return {box.local_offset[0] * row, (box.local_offset[0] + box.shape[0]) * row};
}

}  // namespace

TensorParallelGradients::TensorParallelGradients(const std::vector<ParameterPiece>& pieces) {
  for (const ParameterPiece& piece : pieces) {
    const Axis& axis = piece.parameter->axis();
    if (axis.size == 1) continue;
    if (piece.parameter->spec().sum_over_tp) add(piece, 0, piece.first + piece.count, 0, 1);
    const Sharding& sharding = piece.parameter->sharding();
    const std::int64_t sharers = sharding.num_sharers(axis);
    for (const TensorSlice& box : sharding.shared_slices(axis)) {
      const auto [begin, end] = flat_range(box, *piece.parameter);
      add(piece, begin, end, axis.rank / sharers, axis.size / sharers);
    }
  }
}

void TensorParallelGradients::add(const ParameterPiece& piece, std::int64_t begin, std::int64_t end,
                                  std::int64_t place, std::int64_t copies) {
  begin = std::max(begin, piece.first);
  end = std::min(end, piece.first + piece.count);
  if (begin >= end) return;
  MEGATRON_CHECK(runs_.empty() || tp_.comm == piece.parameter->axis().comm,
                 "parameters on several tensor-parallel axes");
  tp_ = piece.parameter->axis();
  runs_.push_back({piece.parameter, begin, end - begin, place, copies});
  size_ += (end - begin) * copies;
}

void TensorParallelGradients::sum() const {
  if (runs_.empty()) return;
  MEGATRON_CHECK(tp_.comm != nullptr, "gradients of ", runs_.front().parameter->name(),
                 " need the group of the axis ", tp_.name);
  const at::Tensor message = at::zeros({size_}, runs_.front().parameter->grad().options());
  // The places of other sharers stay zero and do not change the sum.
  const auto for_each_run = [&](const auto& visit) {
    std::int64_t begin = 0;
    for (const Run& run : runs_) {
      visit(run.parameter->grad().view({-1}).narrow(0, run.first, run.count),
            message.narrow(0, begin + run.place * run.count, run.count));
      begin += run.count * run.copies;
    }
  };
  for_each_run([](const at::Tensor& grad, at::Tensor place) { place.copy_(grad); });
  tp_.comm->all_reduce(message, "gradients over tp");
  for_each_run([](at::Tensor grad, const at::Tensor& place) { grad.copy_(place); });
}

}  // namespace megatron
