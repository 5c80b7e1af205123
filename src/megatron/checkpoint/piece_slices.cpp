#include "megatron/checkpoint/piece_slices.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Appends the slices of elements [first, first + count) of the dimensions from `dim` on. `prefix`
/// holds the indices in the dimensions before it.
void append_slices(const Shape& shape, std::size_t dim, const Shape& prefix, std::int64_t first,
                   std::int64_t count, std::vector<TensorSlice>& slices) {
  const std::int64_t row =
      num_elements({shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end()});
  const auto descend = [&](std::int64_t elements) {
    Shape inner = prefix;
    inner.push_back(first / row);
    append_slices(shape, dim + 1, inner, first % row, elements, slices);
    first += elements;
    count -= elements;
  };
  if (first % row != 0) descend(std::min(count, row - first % row));
  if (const std::int64_t rows = count / row; rows > 0) {
    Shape offset = prefix, extent(prefix.size(), 1);
    offset.push_back(first / row);
    offset.resize(shape.size(), 0);
    extent.push_back(rows);
    extent.insert(extent.end(), shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end());
    slices.push_back({offset, offset, std::move(extent)});
    first += rows * row;
    count -= rows * row;
  }
  if (count > 0) descend(count);
}

/// Returns the slice as the tensor that holds it sees it: its place there is the global offset.
TensorSlice seen_from_local(const TensorSlice& slice) {
  return {.global_offset = slice.local_offset,
          .local_offset = slice.global_offset,
          .shape = slice.shape};
}

}  // namespace

std::vector<TensorSlice> flat_range_slices(const Shape& shape, std::int64_t first,
                                           std::int64_t count) {
  std::vector<TensorSlice> slices;
  if (count > 0) append_slices(shape, 0, {}, first, count, slices);
  return slices;
}

std::vector<TensorSlice> piece_slices(const ParameterPiece& piece,
                                      const std::vector<TensorSlice>& slices) {
  std::vector<TensorSlice> result;
  for (const TensorSlice& range :
       flat_range_slices(piece.parameter->local_shape(), piece.first, piece.count)) {
    for (const TensorSlice& slice : slices) {
      if (const auto common = intersect(seen_from_local(slice), range))
        result.push_back(seen_from_local(*common));
    }
  }
  return result;
}

at::Tensor view_slice(const at::Tensor& flat, const ParameterPiece& piece,
                      const TensorSlice& slice) {
  MEGATRON_CHECK(flat.is_contiguous() && flat.numel() == piece.count, piece.parameter->name(),
                 ": a tensor of shape ", flat.sizes(), " for a piece of ", piece.count);
  const Shape local = piece.parameter->local_shape();
  Shape strides(local.size());
  std::int64_t stride = 1, first = 0;
  for (std::size_t dim = local.size(); dim-- > 0; stride *= local[dim]) {
    strides[dim] = stride;
    first += slice.local_offset[dim] * stride;
  }
  return flat.as_strided(slice.shape, strides, flat.storage_offset() + first - piece.first);
}

}  // namespace megatron
