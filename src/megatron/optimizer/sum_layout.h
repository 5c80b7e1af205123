// Which slot holds the sum of which elements (kernels/block_sums.h): the same table on every rank
// that holds the same weights, whatever its slice.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/block_sums.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Elements [begin, begin + count) of a piece of this rank, whose sum is one slot.
struct SumRange {
  std::size_t piece;
  std::int64_t begin, count, slot;
};

struct SumLayout {
  std::vector<kernels::SumSlot> slots = {};
  std::vector<std::int64_t> first_slot = {};  ///< of each parameter of the store, and the end
  std::vector<SumRange> ranges = {};          ///< this rank's, ascending
};

SumLayout sum_layout(const ParamStore& store);

/// Elements of a flattened local tensor that statistics of the whole model leave out on this rank.
struct SkippedElements {
  std::int64_t begin = 0, end = 0;
};
/// Padding, and what a lower rank of the parameter's axis counts.
SkippedElements skipped_elements(const Parameter& parameter);

}  // namespace megatron
