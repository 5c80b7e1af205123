#include "megatron/params/sharding.h"

#include <algorithm>
#include <string>

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

std::vector<Interval> intervals_of(const Sharding& sharding, const Axis& axis) {
  const std::int64_t length = sharding.global_shape[sharding.split_dim];
  std::vector<Interval> result;
  if (sharding.pad_multiple > 0) {
    const std::int64_t local = padded_length(length, sharding.pad_multiple, axis.size);
    const std::int64_t begin = std::min(axis.rank * local, length);
    append(result, begin, std::min(local, length - begin));
    return result;
  }
  std::vector<ShardBlock> blocks = sharding.blocks;
  if (blocks.empty()) blocks.push_back({length / sharding.repeats});
  const std::int64_t run = length / sharding.repeats;
  if (sharding.repeats >= axis.size && sharding.repeats > 1) {
    const std::int64_t mine = divide(sharding.repeats, axis.size, axis);
    append(result, axis.rank * mine * run, mine * run);
    return result;
  }
  const std::int64_t sharers = divide(axis.size, sharding.repeats, axis);
  const std::int64_t part = axis.rank % sharers;
  std::int64_t begin = axis.rank / sharers * run;
  for (const ShardBlock& block : blocks) {
    if (block.splittable) {
      const std::int64_t local = divide(block.size, sharers, axis);
      append(result, begin + part * local, local);
    } else {
      append(result, begin, block.size, sharers > 1);
    }
    begin += block.size;
  }
  return result;
}

/// Merges neighbours that are adjacent in both the global and the local tensor.
std::vector<TensorSlice> boxes_of(const std::vector<Interval>& intervals,
                                  const Sharding& sharding) {
  const int dim = sharding.split_dim;
  const Shape zero(sharding.global_shape.size(), 0);
  std::vector<TensorSlice> result;
  for (const Interval& interval : intervals) {
    if (interval.length == 0) continue;
    if (!result.empty()) {
      TensorSlice& last = result.back();
      const std::int64_t rows = last.shape[dim];
      if (last.global_offset[dim] + rows == interval.begin &&
          last.local_offset[dim] + rows == interval.local) {
        last.shape[dim] += interval.length;
        continue;
      }
    }
    TensorSlice box{zero, zero, sharding.global_shape};
    box.global_offset[dim] = interval.begin;
    box.local_offset[dim] = interval.local;
    box.shape[dim] = interval.length;
    result.push_back(std::move(box));
  }
  return result;
}

}  // namespace

std::int64_t num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  return count;
}

Shape Sharding::local_shape(const Axis& axis) const {
  Shape shape = global_shape;
  if (split_dim < 0) return shape;
  if (pad_multiple > 0) {
    shape[split_dim] = padded_length(global_shape[split_dim], pad_multiple, axis.size);
    return shape;
  }
  shape[split_dim] = 0;
  for (const Interval& interval : intervals_of(*this, axis)) shape[split_dim] += interval.length;
  return shape;
}

std::vector<TensorSlice> Sharding::slices(const Axis& axis) const {
  const Shape zero(global_shape.size(), 0);
  if (split_dim < 0) return {{zero, zero, global_shape}};
  return boxes_of(intervals_of(*this, axis), *this);
}

std::vector<TensorSlice> Sharding::owned_slices(const Axis& axis) const {
  if (split_dim < 0) return axis.rank == 0 ? slices(axis) : std::vector<TensorSlice>{};
  std::vector<Interval> owned = intervals_of(*this, axis);
  if (axis.rank % num_sharers(axis) != 0) std::erase_if(owned, &Interval::is_shared);
  return boxes_of(owned, *this);
}

std::vector<TensorSlice> Sharding::shared_slices(const Axis& axis) const {
  if (split_dim < 0) return {};
  std::vector<Interval> shared = intervals_of(*this, axis);
  std::erase_if(shared, [](const Interval& interval) { return !interval.is_shared; });
  return boxes_of(shared, *this);
}

}  // namespace megatron
