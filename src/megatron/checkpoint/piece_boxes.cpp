#include "megatron/checkpoint/piece_boxes.h"

#include <algorithm>

#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

/// Appends the regions of elements [first, first + count) of the dimensions from `dim` on. `prefix`
/// holds the indices in the dimensions before it.
void append_regions(const Shape& shape, std::size_t dim, const Shape& prefix, std::int64_t first,
                    std::int64_t count, std::vector<Region>& regions) {
  const std::int64_t row =
      num_elements({shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end()});
  const auto descend = [&](std::int64_t elements) {
    Shape inner = prefix;
    inner.push_back(first / row);
    append_regions(shape, dim + 1, inner, first % row, elements, regions);
    first += elements;
    count -= elements;
  };
  if (first % row != 0) descend(std::min(count, row - first % row));
  if (const std::int64_t rows = count / row; rows > 0) {
    Region region{prefix, Shape(prefix.size(), 1)};
    region.offset.push_back(first / row);
    region.shape.push_back(rows);
    region.offset.resize(shape.size(), 0);
    region.shape.insert(region.shape.end(), shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1,
                        shape.end());
    regions.push_back(std::move(region));
    first += rows * row;
    count -= rows * row;
  }
  if (count > 0) descend(count);
}

Shape difference(const Shape& a, const Shape& b) {
  Shape result;
  std::ranges::transform(a, b, std::back_inserter(result), std::minus<>());
  return result;
}

}  // namespace

std::vector<Region> flat_range_regions(const Shape& shape, std::int64_t first, std::int64_t count) {
  std::vector<Region> regions;
  if (count > 0) append_regions(shape, 0, {}, first, count, regions);
  return regions;
}

std::vector<PieceBox> piece_boxes(const ParameterPiece& piece, const at::Tensor& flat,
                                  const std::vector<TensorSlice>& slices) {
  std::vector<PieceBox> result;
  std::int64_t begin = 0;
  for (const Region& region :
       flat_range_regions(piece.parameter->local_shape(), piece.first, piece.count)) {
    const std::int64_t size = num_elements(region.shape);
    const at::Tensor part = flat.narrow(0, begin, size).view(region.shape);
    begin += size;
    for (const TensorSlice& box : slices) {
      const auto common = intersect(region, {box.local_offset, box.shape});
      if (!common) continue;
      Region global = *common;
      for (std::size_t dim = 0; dim < global.offset.size(); ++dim)
        global.offset[dim] += box.global_offset[dim] - box.local_offset[dim];
      result.push_back({std::move(global),
                        narrow_to(part, difference(common->offset, region.offset), common->shape)});
    }
  }
  return result;
}

ParameterPiece whole_piece(Parameter& parameter) {
  return {.parameter = &parameter, .first = 0, .count = num_elements(parameter.local_shape())};
}

}  // namespace megatron
