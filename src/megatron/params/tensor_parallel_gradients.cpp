#include "megatron/params/tensor_parallel_gradients.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/parallel/comm.h"

namespace megatron {
namespace {

/// Returns the range of elements that a slice of whole rows covers in the flattened local tensor.
std::pair<std::int64_t, std::int64_t> flat_range(const TensorSlice& slice,
                                                 const Parameter& parameter) {
  const Shape local = parameter.local_shape();
  MEGATRON_CHECK(std::equal(slice.shape.begin() + 1, slice.shape.end(), local.begin() + 1),
                 parameter.name(), " shares blocks that are not rows");
  const std::int64_t row = num_elements(slice.shape) / slice.shape[0];
  return {slice.local_offset[0] * row, (slice.local_offset[0] + slice.shape[0]) * row};
}

/// Returns whether both axes have the same ranks, as tp and etp may, each under its own name.
bool have_same_ranks(const Axis& a, const Axis& b) {
  return a.comm == b.comm || (a.comm && b.comm && a.comm->ranks() == b.comm->ranks());
}

}  // namespace

TensorParallelGradients::TensorParallelGradients(const std::vector<ParameterPiece>& pieces,
                                                 const std::vector<ParamBucket>& buckets) {
  for (const ParameterPiece& piece : pieces) {
    const Parameter& parameter = *piece.parameter;
    const ParamBucket& bucket = buckets[piece.bucket];
    for (std::size_t k = 0; k < parameter.axes().size(); ++k) {
      const Axis& axis = parameter.axes()[k];
      const AxisSplit& split = parameter.sharding().splits[k];
      if (axis.size == 1) continue;
      if (split.sums_gradients)
        add(piece, bucket, axis,
            {&parameter, 0, piece.first + piece.count, /*place=*/0, /*copies=*/1});
      const std::int64_t sharers = split.num_sharers(axis);
      for (const TensorSlice& slice : parameter.sharding().shared_slices(parameter.axes(), k)) {
        const auto [begin, end] = flat_range(slice, parameter);
        add(piece, bucket, axis,
            {&parameter, begin, end - begin, axis.rank / sharers, axis.size / sharers});
      }
    }
  }
  // All ranks run the collectives of several axes in the same order.
  std::ranges::sort(messages_, {}, &Message::what);
}

/// Adds the part of `run` that lies in `piece`.
void TensorParallelGradients::add(const ParameterPiece& piece, const ParamBucket& bucket,
                                  const Axis& axis, Run run) {
  const std::int64_t begin = std::max(run.first, piece.first),
                     end = std::min(run.first + run.count, piece.first + piece.count);
  if (begin >= end) return;
  run.first = begin;
  run.count = end - begin;
  run.grad = piece.of_own(bucket.own_grad, bucket).narrow(0, begin - piece.first, run.count);
  auto found = std::ranges::find_if(
      messages_, [&](const Message& message) { return have_same_ranks(message.axis, axis); });
  if (found == messages_.end())
    found = messages_.insert(found, Message{.axis = axis, .what = "gradients over " + axis.name});
  found->runs.push_back(run);
  found->size += run.count * run.copies;
}

void TensorParallelGradients::sum() const {
  for (const Message& message : messages_) message.sum();
}

void TensorParallelGradients::Message::sum() const {
  MEGATRON_CHECK(axis.comm != nullptr, "gradients of ", runs.front().parameter->name(),
                 " need the group of the axis ", axis.name);
  const at::Tensor message = at::zeros({size}, runs.front().grad.options());
  // The places of other sharers stay zero and do not change the sum.
  const auto for_each_run = [&](const auto& visit) {
    std::int64_t begin = 0;
    for (const Run& run : runs) {
      visit(run.grad, message.narrow(0, begin + run.place * run.count, run.count));
      begin += run.count * run.copies;
    }
  };
  for_each_run([](const at::Tensor& grad, at::Tensor place) { place.copy_(grad); });
  axis.comm->all_reduce(message, what.c_str());
  for_each_run([](at::Tensor grad, const at::Tensor& place) { grad.copy_(place); });
}

}  // namespace megatron
