// Maps elements to the slots that hold their sums (kernels/block_sums.h). The table is the same on
// every rank with the same weights, whatever slice the rank owns.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/block_sums.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Elements [begin, begin + count) of a piece of this rank; one slot holds their sum.
struct SumRange {
  std::size_t piece;
  std::int64_t begin, count, slot;
};

struct SumLayout {
  std::vector<kernels::SumSlot> slots = {};
  /// Per trained parameter of the store, then the total count.
  std::vector<std::int64_t> first_slot = {};
  std::vector<SumRange> ranges = {};  ///< this rank's ranges, ascending
};

SumLayout sum_layout(const ParamStore& store);

/// Elements [begin, end) of a flattened local tensor that this rank excludes from statistics of the
/// whole model.
struct SkippedElements {
  std::int64_t begin = 0, end = 0;
};
/// Returns the padding and the elements that a lower rank of one of the parameter's axes counts.
SkippedElements skipped_elements(const Parameter& parameter);

}  // namespace megatron
