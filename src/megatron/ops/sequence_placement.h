// Which positions of a sequence the ranks of context parallelism hold. Each rank holds a few
// contiguous runs of positions, one after another: its rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace megatron {

/// A contiguous run of positions of a sequence.
struct PositionRun {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
};

struct SequencePlacement {
  std::int64_t length = 0;                             ///< positions of the whole sequence
  std::vector<std::vector<PositionRun>> runs_of = {};  ///< the runs of each rank of cp, ascending

  /// Returns the rows that a rank holds.
  std::int64_t rows_of(std::int64_t rank) const;
};

/// Cuts a sequence into 2·ranks chunks of which rank r holds numbers r and 2·ranks − 1 − r, as
/// Megatron Core does: under a causal mask all ranks then have the same work. `length` must be a
/// multiple of 2·ranks.
SequencePlacement zigzag_placement(std::int64_t length, std::int64_t ranks);

/// Returns the positions of the runs as int64 [rows] on the CPU.
at::Tensor positions_of(const std::vector<PositionRun>& runs);

}  // namespace megatron
