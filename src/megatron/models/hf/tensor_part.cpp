#include "megatron/models/hf/tensor_part.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Returns the extents of the tensor that holds the slices.
Shape extents(const std::vector<TensorSlice>& slices) {
  Shape shape = slices.back().local_offset;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) shape[dim] += slices.back().shape[dim];
  return shape;
}

at::Tensor narrowed(at::Tensor tensor, const Shape& offset, const Shape& shape) {
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    tensor = tensor.narrow(static_cast<std::int64_t>(dim), offset[dim], shape[dim]);
  return tensor;
}

}  // namespace

std::vector<TensorSlice> TensorPart::slices(const Sharding& ours) const {
  const Shape zeros(ours.global_shape.size(), 0);
  TensorSlice slice{.global_offset = zeros, .local_offset = zeros, .shape = ours.global_shape};
  if (expert) {
    slice.global_offset[0] = *expert;
    slice.shape[0] = 1;
  }
  if (blocks.count == 0) return {slice};
  const auto split =
      std::ranges::find_if(ours.splits, [](const AxisSplit& s) { return !s.blocks.empty(); });
  const std::size_t end = blocks.first + blocks.count;
  MEGATRON_CHECK(split != ours.splits.end() && end <= split->blocks.size(),
                 "a parameter without block ", end - 1);
  const auto dim = static_cast<std::size_t>(split->dim);
  const std::int64_t run = ours.global_shape[dim] / split->repeats;
  std::vector<TensorSlice> slices;
  for (std::size_t block = 0; block < end; ++block) {
    slice.shape[dim] = split->blocks[block].size;
    for (std::int64_t repeat = 0; block >= blocks.first && repeat < split->repeats; ++repeat) {
      slices.push_back(slice);
      slices.back().global_offset[dim] += repeat * run;
      slice.local_offset[dim] += slice.shape[dim];
    }
    slice.global_offset[dim] += slice.shape[dim];
  }
  return slices;
}

Shape TensorPart::shape(const Sharding& ours) const {
  Shape shape = extents(slices(ours));
  if (expert) shape.erase(shape.begin());
  if (is_transposed) std::ranges::reverse(shape);
  return shape;
}

at::Tensor TensorPart::oriented(at::Tensor theirs) const {
  if (is_transposed && theirs.dim() == 2) theirs = theirs.t();
  return expert ? theirs.unsqueeze(0) : theirs;
}

at::Tensor TensorPart::cut(const at::Tensor& value, const Sharding& ours) const {
  const std::vector<TensorSlice> parts = slices(ours);
  at::Tensor part = narrowed(value, parts[0].global_offset, parts[0].shape);
  if (parts.size() > 1) {
    part = at::empty(extents(parts), value.options());
    for (const TensorSlice& slice : parts)
      narrowed(part, slice.local_offset, slice.shape)
          .copy_(narrowed(value, slice.global_offset, slice.shape));
  }
  if (expert) part = part.squeeze(0);
  return is_transposed && part.dim() == 2 ? part.t() : part;
}

}  // namespace megatron
