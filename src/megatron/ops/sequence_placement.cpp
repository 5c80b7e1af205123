#include "megatron/ops/sequence_placement.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

std::int64_t rows_in(const std::vector<PositionRun>& runs) {
  std::int64_t rows = 0;
  for (const PositionRun& run : runs) rows += run.count;
  return rows;
}

/// Checks the begins of packed sequences. No sequence is empty.
void check_packing(const std::vector<std::int64_t>& cu_seqlens, std::int64_t length) {
  if (cu_seqlens.empty()) return;
  MEGATRON_CHECK(
      cu_seqlens.front() == 0 && cu_seqlens.back() == length &&
          std::ranges::adjacent_find(cu_seqlens, std::greater_equal<>()) == cu_seqlens.end(),
      "cu_seqlens of ", cu_seqlens.size(), " numbers, from ", cu_seqlens.front(), " to ",
      cu_seqlens.back(), ", for ", length, " rows");
}

/// Returns the index of the packed sequence that holds a row.
std::int64_t sequence_at(const SequencePlacement& placement, std::int64_t row) {
  if (!placement.is_packed()) return 0;
  const auto& begins = placement.cu_seqlens;
  return std::ranges::upper_bound(begins, row) - begins.begin() - 1;
}

}  // namespace

std::int64_t SequencePlacement::rows_of(std::int64_t rank) const {
  return rows_in(runs_of[static_cast<std::size_t>(rank)]);
}

void SequencePlacement::move_to(const at::Device& device) {
  if (!row_of.defined()) return;
  row_of = row_of.to(device);
  order = order.to(device);
}

SequencePlacement whole_placement(std::int64_t length, std::vector<std::int64_t> cu_seqlens) {
  check_packing(cu_seqlens, length);
  return {.length = length, .runs_of = {{{0, length}}}, .cu_seqlens = std::move(cu_seqlens)};
}

SequencePlacement zigzag_placement(std::int64_t length, std::int64_t ranks,
                                   std::vector<std::int64_t> cu_seqlens) {
  MEGATRON_CHECK(ranks == 1 || length % (2 * ranks) == 0, "a sequence of ", length,
                 " over cp=", ranks);
  return zigzag_placement_of_parts({0, length}, ranks, std::move(cu_seqlens));
}

SequencePlacement zigzag_placement_of_parts(const std::vector<std::int64_t>& parts,
                                            std::int64_t ranks,
                                            std::vector<std::int64_t> cu_seqlens) {
  const std::int64_t length = parts.back();
  if (ranks == 1) return whole_placement(length, std::move(cu_seqlens));
  check_packing(cu_seqlens, length);
  SequencePlacement placement{.length = length,
                              .runs_of = RunsOfRanks(static_cast<std::size_t>(ranks)),
                              .cu_seqlens = std::move(cu_seqlens)};
  for (std::size_t part = 0; part + 1 < parts.size(); ++part) {
    const RunsOfRanks runs = zigzag_runs(parts[part + 1] - parts[part], ranks, parts[part]);
    for (std::size_t rank = 0; rank < runs.size(); ++rank) {
      for (const PositionRun& run : runs[rank])
        placement.runs_of[rank].push_back({parts[part] + run.first, run.count});
    }
  }
  std::vector<at::Tensor> rows;
  for (const auto& runs : placement.runs_of) rows.push_back(positions_of(runs));
  placement.order = at::cat(rows);
  placement.row_of =
      at::empty_like(placement.order).scatter_(0, placement.order, at::arange(length, at::kLong));
  return placement;
}

PositionRun rows_of_sequence(const SequencePlacement& placement, std::int64_t sequence) {
  if (!placement.is_packed()) return {0, placement.length};
  const std::int64_t first = placement.cu_seqlens[static_cast<std::size_t>(sequence)];
  return {first, placement.cu_seqlens[static_cast<std::size_t>(sequence + 1)] - first};
}

std::vector<SequencePiece> pieces_of(const std::vector<PositionRun>& runs,
                                     const SequencePlacement& placement) {
  std::vector<SequencePiece> pieces;
  std::int64_t row = 0;
  for (const PositionRun& run : runs) {
    std::int64_t first = run.first;
    while (first < run.end()) {
      const std::int64_t sequence = sequence_at(placement, first);
      const PositionRun whole = rows_of_sequence(placement, sequence);
      const std::int64_t count = std::min(run.end(), whole.end()) - first;
      pieces.push_back({row, {first - whole.first, count}, sequence});
      first += count;
      row += count;
    }
  }
  return pieces;
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

RowsInSequences rows_in_sequences(const std::vector<PositionRun>& runs,
                                  const SequencePlacement& placement) {
  const std::int64_t rows = rows_in(runs);
  RowsInSequences packed{at::empty({rows}, at::kLong), at::empty({rows}, at::kLong)};
  auto* positions = packed.positions.mutable_data_ptr<std::int64_t>();
  auto* sequences = packed.sequences.mutable_data_ptr<std::int64_t>();
  for (const SequencePiece& piece : pieces_of(runs, placement)) {
    std::iota(positions + piece.row, positions + piece.row + piece.positions.count,
              piece.positions.first);
    std::fill_n(sequences + piece.row, piece.positions.count, piece.sequence);
  }
  return packed;
}

at::Tensor gather_placed_rows(const at::Tensor& own, const SequencePlacement& placement,
                              const Axis& cp, const std::vector<std::int64_t>& numbers) {
  const auto selected = [&](const at::Tensor& rows, const std::vector<std::int64_t>& places) {
    return at::index_select(rows, 0, at::tensor(places, at::kLong).to(rows.device()));
  };
  const at::Tensor row_of = placement.row_of.cpu();
  const auto* place_of = row_of.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> mine, counts, order(numbers.size());
  std::int64_t first = 0, num_gathered = 0;
  for (std::int64_t rank = 0; rank < cp.size; ++rank) {
    const std::int64_t end = first + placement.rows_of(rank);
    counts.push_back(-num_gathered);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t place = place_of[numbers[i]];
      if (place < first || place >= end) continue;
      if (rank == cp.rank) mine.push_back(place - first);
      order[i] = num_gathered++;
    }
    counts.back() += num_gathered;
    first = end;
  }
  return selected(all_gather(cp, selected(own, mine), "rows of sequences", counts), order);
}

at::Tensor gather_placed_rows(const at::Tensor& own, const SequencePlacement& placement,
                              const Axis& cp) {
  if (cp.size == 1) return own;
  std::vector<std::int64_t> counts;
  for (std::int64_t rank = 0; rank < cp.size; ++rank) counts.push_back(placement.rows_of(rank));
  return at::index_select(all_gather(cp, own, "rows of sequences", counts), 0, placement.row_of);
}

}  // namespace megatron
