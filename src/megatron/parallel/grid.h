// An N-dimensional grid of ranks as pure arithmetic (Megatron Core's HyperCommGrid without its
// process groups). A query costs time and memory in proportion to its answer only. The first
// dimension varies fastest.
//
//   const Grid grid({2, 3, 4}, {"tp", "cp", "dp"});
//   grid.group(7, "tp-dp");  // {0, 1, 6, 7, 12, 13, 18, 19}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

using RankList = std::vector<std::int64_t>;

/// An immutable grid of ranks. Sets of dimensions are written as names joined by "-", in any order.
/// An unknown or repeated name throws UserError.
class Grid {
 public:
  /// Covers ranks rank_offset … rank_offset + product(shape) − 1. Throws UserError when a size is
  /// below 1, or when a name is empty, repeated or contains "-".
  Grid(const std::vector<std::int64_t>& shape, const std::vector<std::string>& dim_names,
       std::int64_t rank_offset = 0);

  std::int64_t num_ranks() const { return num_ranks_; }
  bool contains(std::int64_t rank) const {
    return rank >= rank_offset_ && rank - rank_offset_ < num_ranks_;
  }

  /// Returns the number of ranks in a group of `dims`.
  std::int64_t size(std::string_view dims) const;
  /// Returns the position of `rank` in its group of `dims`; for one dimension, its coordinate.
  std::int64_t coordinate(std::int64_t rank, std::string_view dims) const;
  /// Returns every coordinate of `rank`, in the order of the dimensions.
  std::vector<std::int64_t> coordinates(std::int64_t rank) const;
  /// Returns the ranks that differ from `rank` in `dims` only, ascending and including `rank`.
  RankList group(std::int64_t rank, std::string_view dims) const;
  /// Returns all groups of `dims`, ordered by their first ranks.
  std::vector<RankList> groups(std::string_view dims) const;
  /// Returns the distance between neighbours along one dimension.
  std::int64_t stride(std::string_view dim) const;

 private:
  std::size_t index_of(std::string_view name) const;
  std::vector<bool> mask_of(std::string_view dims) const;
  RankList group_from(std::int64_t first, const std::vector<bool>& mask) const;

  std::vector<std::string> names_;
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t rank_offset_ = 0, num_ranks_ = 1;
};

/// Splits "tp-dp" into {"tp", "dp"}.
std::vector<std::string_view> split_dims(std::string_view dims);

}  // namespace megatron
