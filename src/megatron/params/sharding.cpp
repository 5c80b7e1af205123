#include "megatron/params/sharding.h"

#include <algorithm>
#include <string>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// A run of rows along the split dimension: its global begin, local begin and length.
struct Interval {
  std::int64_t begin, local, length;
  bool is_shared = false;  ///< other ranks also hold it
};

void append(std::vector<Interval>& intervals, std::int64_t begin, std::int64_t length,
            bool is_shared = false) {
  const std::int64_t local =
      intervals.empty() ? 0 : intervals.back().local + intervals.back().length;
  intervals.push_back({begin, local, length, is_shared});
}

std::int64_t divide(std::int64_t size, std::int64_t parts, const Axis& axis) {
  if (size % parts != 0) {
    throw UserError({"a parameter block of " + std::to_string(size) +
                         " rows cannot be split over " + axis.name + "=" +
                         std::to_string(axis.size),
                     "", "choose a degree that divides it"});
  }
  return size / parts;
}

std::int64_t padded_length(std::int64_t length, std::int64_t multiple, std::int64_t parts) {
  const std::int64_t unit = multiple * parts;
  return (length + unit - 1) / unit * multiple;
}

/// Returns the rows of dimension split.dim that the rank holds, of `length` rows.
std::vector<Interval> intervals_of(const AxisSplit& split, std::int64_t length, const Axis& axis) {
  std::vector<Interval> result;
  if (split.pad_multiple > 0) {
    const std::int64_t local = padded_length(length, split.pad_multiple, axis.size);
    const std::int64_t begin = std::min(axis.rank * local, length);
    append(result, begin, std::min(local, length - begin));
    return result;
  }
  if (!split.order.empty()) {
    const std::int64_t local = divide(length, axis.size, axis);
    for (std::int64_t row = axis.rank * local; row < (axis.rank + 1) * local; ++row)
      append(result, split.order.at(static_cast<std::size_t>(row)), 1);
    return result;
  }
  std::vector<ShardBlock> blocks = split.blocks;
  if (blocks.empty()) blocks.push_back({length / split.repeats});
  const std::int64_t run = length / split.repeats;
  if (split.repeats >= axis.size && split.repeats > 1) {
    const std::int64_t mine = divide(split.repeats, axis.size, axis);
    append(result, axis.rank * mine * run, mine * run);
    return result;
  }
  const std::int64_t sharers = divide(axis.size, split.repeats, axis);
  const std::int64_t part = axis.rank % sharers;
  std::int64_t begin = axis.rank / sharers * run;
  for (const ShardBlock& block : blocks) {
    if (block.splittable) {
      const std::int64_t local = divide(block.size, sharers, axis);
      append(result, begin + part * local, local);
    } else {  // one unit of as many ranks as there are more ranks than units
      const std::int64_t parts = std::min(block.units, sharers),
                         local = divide(block.size, parts, axis);
      divide(block.units, parts, axis);
      append(result, begin + part / divide(sharers, parts, axis) * local, local, sharers > parts);
    }
    begin += block.size;
  }
  return result;
}

/// Drops empty intervals and merges neighbours that are adjacent in both the global and the local
/// tensor.
std::vector<Interval> merged(const std::vector<Interval>& intervals) {
  std::vector<Interval> result;
  for (const Interval& interval : intervals) {
    if (interval.length == 0) continue;
    if (!result.empty() && result.back().begin + result.back().length == interval.begin &&
        result.back().local + result.back().length == interval.local) {
      result.back().length += interval.length;
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

/// Cuts every slice into the intervals of dimension `dim`, in ascending order. Each slice spans the
/// whole dimension.
std::vector<TensorSlice> cut(const std::vector<TensorSlice>& slices, int dim,
                             const std::vector<Interval>& intervals) {
  std::vector<TensorSlice> result;
  for (const TensorSlice& slice : slices) {
    for (const Interval& interval : merged(intervals)) {
      TensorSlice part = slice;
      part.global_offset[dim] = interval.begin;
      part.local_offset[dim] = interval.local;
      part.shape[dim] = interval.length;
      result.push_back(std::move(part));
    }
  }
  return result;
}

/// Returns the product of the intervals of all splits. `select(k, intervals)` may erase intervals
/// of split k, and returns false when the rank has no slice at all.
template <class Select>
std::vector<TensorSlice> selected_slices(const Sharding& sharding, std::span<const Axis> axes,
                                         const Select& select) {
  MEGATRON_CHECK(axes.size() == sharding.splits.size(), "a parameter with ", sharding.splits.size(),
                 " splits was given ", axes.size(), " axes");
  const Shape zero(sharding.global_shape.size(), 0);
  std::vector<TensorSlice> result{{zero, zero, sharding.global_shape}};
  std::vector<bool> is_cut(sharding.global_shape.size(), false);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const AxisSplit& split = sharding.splits[k];
    std::vector<Interval> intervals;
    if (split.dim >= 0) intervals = intervals_of(split, sharding.global_shape[split.dim], axes[k]);
    if (!select(k, intervals)) return {};
    if (split.dim < 0) continue;
    MEGATRON_CHECK(!is_cut[split.dim], "two axes split dimension ", split.dim);
    is_cut[split.dim] = true;
    result = cut(result, split.dim, intervals);
  }
  std::ranges::sort(result, {}, &TensorSlice::local_offset);
  return result;
}

}  // namespace

std::int64_t num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  return count;
}

Shape Sharding::local_shape(std::span<const Axis> axes) const {
  Shape shape = global_shape;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const AxisSplit& split = splits.at(k);
    if (split.dim < 0) continue;
    std::int64_t& extent = shape[split.dim];
    const std::int64_t length = std::exchange(extent, 0);
    if (split.pad_multiple > 0) {
      extent = padded_length(length, split.pad_multiple, axes[k].size);
    } else {
      for (const Interval& interval : intervals_of(split, length, axes[k]))
        extent += interval.length;
    }
  }
  return shape;
}

std::vector<TensorSlice> Sharding::slices(std::span<const Axis> axes) const {
  return selected_slices(*this, axes, [](std::size_t, std::vector<Interval>&) { return true; });
}

std::vector<TensorSlice> Sharding::owned_slices(std::span<const Axis> axes) const {
  return selected_slices(*this, axes, [&](std::size_t k, std::vector<Interval>& intervals) {
    if (splits[k].dim < 0) return axes[k].rank == 0;
    if (axes[k].rank % splits[k].num_sharers(axes[k]) != 0)
      std::erase_if(intervals, &Interval::is_shared);
    return true;
  });
}

std::vector<TensorSlice> Sharding::shared_slices(std::span<const Axis> axes,
                                                 std::size_t split) const {
  if (splits.at(split).dim < 0) return {};
  return selected_slices(*this, axes, [&](std::size_t k, std::vector<Interval>& intervals) {
    if (k == split)
      std::erase_if(intervals, [](const Interval& interval) { return !interval.is_shared; });
    return true;
  });
}

}  // namespace megatron
