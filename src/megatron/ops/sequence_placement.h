// Which rows of a microbatch the ranks of context parallelism hold. Each rank holds a few
// contiguous runs of positions, one after another: its rows. A microbatch may pack several
// sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/parallel/axis.h"
#include "megatron/schedules/position_runs.h"

namespace megatron {

/// The rows of a microbatch. Without `cu_seqlens` row i is position i of the sequence of each
/// sample. With it, sequences of different lengths lie one after another (one column, b = 1).
struct SequencePlacement {
  std::int64_t length = 0;   ///< rows of all ranks
  RunsOfRanks runs_of = {};  ///< the rows of each rank of cp, ascending
  /// Packed sequences: the first row of each, and `length` as the last element.
  std::vector<std::int64_t> cu_seqlens = {};
  std::int64_t padded_length = 0;  ///< > 0: positions of each sequence before its padding was cut
  /// int64 [length], for several ranks: row_of[i] is the place of row i when the rows of all ranks
  /// lie rank by rank, and order[j] is the row that lies there.
  at::Tensor row_of = {}, order = {};

  bool is_packed() const { return !cu_seqlens.empty(); }
  /// Moves the tensors to the device of the rows.
  void move_to(const at::Device& device);
  /// Returns the number of rows of a rank.
  std::int64_t rows_of(std::int64_t rank) const;
};

/// Rows of a rank that are neighbours in one sequence.
struct SequencePiece {
  std::int64_t row = 0;       ///< the first one's index among the rank's rows
  PositionRun positions;      ///< in the sequence
  std::int64_t sequence = 0;  ///< index of the packed sequence; 0 without packing
};

/// Places whole sequences on one rank. `cu_seqlens` is empty, or the begins of packed sequences.
SequencePlacement whole_placement(std::int64_t length, std::vector<std::int64_t> cu_seqlens);

/// Cuts the rows into 2·ranks chunks of which rank r holds numbers r and 2·ranks − 1 − r, as
/// Megatron Core does with a sequence: under a causal mask all ranks then have the same work.
/// Packed sequences are cut as one run of rows, so every rank holds equally many and no sequence
/// needs padding. `length` must be a multiple of 2·ranks.
SequencePlacement zigzag_placement(std::int64_t length, std::int64_t ranks,
                                   std::vector<std::int64_t> cu_seqlens = {});

/// zigzag_placement() of each part of the rows on its own: `parts` are the begins of the parts, and
/// the sum of their lengths. All ranks then have the same work in each part. Parts may have any
/// length (zigzag_runs()); if each is a multiple of 2·ranks, the ranks hold equally many rows.
SequencePlacement zigzag_placement_of_parts(const std::vector<std::int64_t>& parts,
                                            std::int64_t ranks,
                                            std::vector<std::int64_t> cu_seqlens);

/// Cuts runs of rows where packed sequences meet.
std::vector<SequencePiece> pieces_of(const std::vector<PositionRun>& runs,
                                     const SequencePlacement& placement);

/// Returns the positions of a packed or whole sequence: `first` to `first` + `length` − 1 as rows.
PositionRun rows_of_sequence(const SequencePlacement& placement, std::int64_t sequence);

/// Returns the numbers of the runs as int64 [rows] on the CPU.
at::Tensor positions_of(const std::vector<PositionRun>& runs);

/// The position of each row of a rank in its sequence, and the index of that sequence: int64 [rows]
/// on the CPU.
struct RowsInSequences {
  at::Tensor positions, sequences;
};
RowsInSequences rows_in_sequences(const std::vector<PositionRun>& runs,
                                  const SequencePlacement& placement);

/// Returns the rows of all ranks of cp, of which each gives its own [rows, …], in their order:
/// those of these numbers, or all. Records no gradient. Collective over cp.
at::Tensor gather_placed_rows(const at::Tensor& own, const SequencePlacement& placement,
                              const Axis& cp, const std::vector<std::int64_t>& numbers);
at::Tensor gather_placed_rows(const at::Tensor& own, const SequencePlacement& placement,
                              const Axis& cp);

}  // namespace megatron
