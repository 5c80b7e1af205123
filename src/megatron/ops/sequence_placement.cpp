#include "megatron/ops/sequence_placement.h"

#include <ATen/ops/empty.h>

#include <numeric>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::int64_t rows_in(const std::vector<PositionRun>& runs) {
  std::int64_t rows = 0;
  for (const PositionRun& run : runs) rows += run.count;
  return rows;
}

}  // namespace

std::int64_t SequencePlacement::rows_of(std::int64_t rank) const {
  return rows_in(runs_of[static_cast<std::size_t>(rank)]);
}

SequencePlacement zigzag_placement(std::int64_t length, std::int64_t ranks) {
  MEGATRON_CHECK(length % (2 * ranks) == 0, "a sequence of ", length, " over cp=", ranks);
  const std::int64_t chunk = length / (2 * ranks);
  SequencePlacement placement{.length = length};
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    placement.runs_of.push_back({{rank * chunk, chunk}, {(2 * ranks - 1 - rank) * chunk, chunk}});
  return placement;
}

at::Tensor positions_of(const std::vector<PositionRun>& runs) {
  at::Tensor positions = at::empty({rows_in(runs)}, at::kLong);
  auto* to = positions.mutable_data_ptr<std::int64_t>();
  for (const PositionRun& run : runs) {
    std::iota(to, to + run.count, run.first);
    to += run.count;
  }
  return positions;
}

}  // namespace megatron
