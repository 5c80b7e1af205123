#include "megatron/checkpoint/box_math.h"

#include <algorithm>
#include <vector>

namespace megatron {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;

bool lies_inside(const Region& region, const Shape& shape) {
  if (region.offset.size() != shape.size() || region.shape.size() != shape.size()) return false;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (region.offset[dim] < 0 || region.shape[dim] < 0 || region.shape[dim] > shape[dim] ||
        region.offset[dim] > shape[dim] - region.shape[dim])
      return false;
  }
  return true;
}

std::string region_text(const Region& region) {
  return shape_text(region.shape) + " at " + shape_text(region.offset);
}

/// Describes two regions that share an element; empty when there are none. Sorting by the first
/// dimension limits the comparisons to regions that overlap in it.
std::string overlap_error(std::span<const Region> regions) {
  std::vector<const Region*> sorted;
  for (const Region& region : regions) sorted.push_back(&region);
  const auto first = [](const Region* region) {
    return region->offset.empty() ? 0 : region->offset[0];
  };
  const auto length = [](const Region* region) {
    return region->shape.empty() ? 1 : region->shape[0];
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Region* a, const Region* b) { return first(a) < first(b); });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = i + 1;
         j < sorted.size() && first(sorted[j]) < first(sorted[i]) + length(sorted[i]); ++j) {
      if (intersect(*sorted[i], *sorted[j]))
        return "pieces " + region_text(*sorted[i]) + " and " + region_text(*sorted[j]) + " overlap";
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

std::optional<Region> intersect(const Region& a, const Region& b) {
  Region common;
  for (std::size_t dim = 0; dim < a.shape.size(); ++dim) {
    const std::int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const std::int64_t end = std::min(a.offset[dim] + a.shape[dim], b.offset[dim] + b.shape[dim]);
    if (end <= begin) return std::nullopt;
    common.offset.push_back(begin);
    common.shape.push_back(end - begin);
  }
  return common;
}

std::string tiling_error(const Shape& shape, std::span<const Region> regions) {
  const auto elements = checked_num_elements(shape);
  if (!elements) return "shape " + shape_text(shape) + " is not valid";
  std::int64_t covered = 0;
  for (const Region& region : regions) {
    if (!lies_inside(region, shape))
      return "piece " + region_text(region) + " lies outside the shape " + shape_text(shape);
    covered += std::min(num_elements(region.shape), kMaxElements - covered);
  }
  if (const std::string fault = overlap_error(regions); !fault.empty()) return fault;
  if (covered < *elements)
    return "its pieces hold " + std::to_string(covered) + " of " + std::to_string(*elements) +
           " elements";
  return {};
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

}  // namespace megatron
