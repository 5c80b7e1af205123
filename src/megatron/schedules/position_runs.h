// Contiguous runs of positions of a sequence: how context parallelism divides a sequence into them,
// and which of them attention connects.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace megatron {

/// A contiguous run of positions.
struct PositionRun {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const PositionRun&) const = default;
};

/// The runs of each rank, one after another.
using RunsOfRanks = std::vector<std::vector<PositionRun>>;

/// Cuts `length` positions into 2·ranks chunks of which rank r holds numbers r and 2·ranks − 1 − r,
/// as Megatron Core does. One rank holds one run. If `length` is no multiple of 2·ranks, some
/// chunks are longer by one; `first`, the number of positions before these, decides which, so that
/// the ranks get equally many single positions.
RunsOfRanks zigzag_runs(std::int64_t length, std::int64_t ranks, std::int64_t first = 0);

/// Returns the runs of groups of `ranks` neighbours: those of its ranks, rank by rank.
RunsOfRanks join_neighbours(const RunsOfRanks& runs, std::int64_t ranks);

/// Which keys a query sees by its position.
struct PositionMask {
  bool causal = true;
  /// Keys that a query sees to its left and right; −1 means unlimited.
  std::array<std::int64_t, 2> window{-1, -1};
  std::int64_t chunk = 0;  ///< if > 0, a query sees the keys of its own chunk of positions only
  bool operator==(const PositionMask&) const = default;
};

/// Returns whether a query of one run may see a key of another in the same sequence.
bool sees(const PositionRun& queries, const PositionRun& keys, const PositionMask& mask);

/// Returns the number of pairs of a query and a key that it sees.
double visible_pairs(const PositionRun& queries, const PositionRun& keys, const PositionMask& mask);

}  // namespace megatron
