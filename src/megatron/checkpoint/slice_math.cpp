#include "megatron/checkpoint/slice_math.h"

#include <algorithm>
#include <vector>

#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;

bool lies_inside(const TensorSlice& slice, const Shape& shape) {
  const Shape& offset = slice.global_offset;
  if (offset.size() != shape.size() || slice.shape.size() != shape.size()) return false;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (offset[dim] < 0 || slice.shape[dim] < 0 || slice.shape[dim] > shape[dim] ||
        offset[dim] > shape[dim] - slice.shape[dim])
      return false;
  }
  return true;
}

std::string slice_text(const TensorSlice& slice) {
  return shape_text(slice.shape) + " at " + shape_text(slice.global_offset);
}

/// Describes two slices that share an element; empty when there are none. Sorting by the first
/// dimension limits the comparisons to slices that overlap in it.
std::string overlap_error(std::span<const TensorSlice> slices) {
  std::vector<const TensorSlice*> sorted;
  for (const TensorSlice& slice : slices) sorted.push_back(&slice);
  const auto first = [](const TensorSlice* slice) {
    return slice->global_offset.empty() ? 0 : slice->global_offset[0];
  };
  const auto length = [](const TensorSlice* slice) {
    return slice->shape.empty() ? 1 : slice->shape[0];
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const TensorSlice* a, const TensorSlice* b) { return first(a) < first(b); });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = i + 1;
         j < sorted.size() && first(sorted[j]) < first(sorted[i]) + length(sorted[i]); ++j) {
      if (intersect(*sorted[i], *sorted[j]))
        return "pieces " + slice_text(*sorted[i]) + " and " + slice_text(*sorted[j]) + " overlap";
    }
  }
  return {};
}

}  // namespace

std::optional<std::int64_t> checked_num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(count, extent, &count) || count > kMaxElements) return std::nullopt;
  }
  return count;
}

TensorSlice slice_at(Shape offset, Shape shape) {
  Shape zero(shape.size(), 0);
  return {std::move(offset), std::move(zero), std::move(shape)};
}

TensorSlice whole_slice(const Shape& shape) { return slice_at(Shape(shape.size(), 0), shape); }

std::optional<TensorSlice> intersect(const TensorSlice& a, const TensorSlice& b) {
  TensorSlice common;
  for (std::size_t dim = 0; dim < a.shape.size(); ++dim) {
    const std::int64_t a_begin = a.global_offset[dim], b_begin = b.global_offset[dim];
    const std::int64_t begin = std::max(a_begin, b_begin);
    const std::int64_t end = std::min(a_begin + a.shape[dim], b_begin + b.shape[dim]);
    if (end <= begin) return std::nullopt;
    common.global_offset.push_back(begin);
    common.local_offset.push_back(a.local_offset[dim] + begin - a_begin);
    common.shape.push_back(end - begin);
  }
  return common;
}

std::string tiling_error(const Shape& shape, std::span<const TensorSlice> slices) {
  const auto elements = checked_num_elements(shape);
  if (!elements) return "shape " + shape_text(shape) + " is not valid";
  std::int64_t covered = 0;
  for (const TensorSlice& slice : slices) {
    if (!lies_inside(slice, shape))
      return "piece " + slice_text(slice) + " lies outside the shape " + shape_text(shape);
    covered += std::min(num_elements(slice.shape), kMaxElements - covered);
  }
  if (const std::string fault = overlap_error(slices); !fault.empty()) return fault;
  if (covered < *elements)
    return "its pieces hold " + std::to_string(covered) + " of " + std::to_string(*elements) +
           " elements";
  return {};
}

std::string shape_text(const Shape& shape) { return "[" + joined_text(shape) + "]"; }

}  // namespace megatron
