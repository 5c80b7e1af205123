// An N-dimensional grid of ranks as pure arithmetic (Megatron Core's HyperCommGrid without its
// process groups): a rank's coordinates, and the group of any set of dimensions in time and memory
// of that group alone. The first dimension is the fastest.
//
//   const Grid grid({2, 3, 4}, {"tp", "cp", "dp"});
//   grid.group(7, "tp-dp");   // {0, 1, 6, 7, 12, 13, 18, 19}: the ranks that differ from rank 7 in
//   tp and dp only
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

using RankList = std::vector<std::int64_t>;

/// An immutable value. Sets of dimensions are written as names joined by "-", in any order; an
/// unknown or repeated one is a UserError.
class Grid {
 public:
  /// Ranks rank_offset … rank_offset + product(shape) − 1. UserError when a size is below 1, a name
  /// is empty, repeated or holds "-".
  Grid(const std::vector<std::int64_t>& shape, const std::vector<std::string>& dim_names,
       std::int64_t rank_offset = 0);

  std::int64_t rank_offset() const { return rank_offset_; }
  std::int64_t num_ranks() const { return num_ranks_; }
  bool contains(std::int64_t rank) const {
    return rank >= rank_offset_ && rank - rank_offset_ < num_ranks_;
  }
  const std::vector<std::string>& dim_names() const { return names_; }

  /// The number of ranks in a group of `dims`.
  std::int64_t size(std::string_view dims) const;
  /// The position of `rank` in its group of `dims`: for one dimension, its coordinate.
  std::int64_t coordinate(std::int64_t rank, std::string_view dims) const;
  /// Every coordinate of `rank`, in the order of dim_names().
  std::vector<std::int64_t> coordinates(std::int64_t rank) const;
  /// The rank at these coordinates: the inverse of coordinates().
  std::int64_t rank_at(const std::vector<std::int64_t>& coordinates) const;
  /// The ranks that differ from `rank` in `dims` only, ascending, `rank` among them.
  RankList group(std::int64_t rank, std::string_view dims) const;
  std::int64_t num_groups(std::string_view dims) const { return num_ranks_ / size(dims); }
  /// All groups of `dims`, in the order of their first ranks.
  std::vector<RankList> groups(std::string_view dims) const;
  /// `dims` in the order of the grid: one spelling for each set.
  std::string canonical(std::string_view dims) const;
  /// The distance between neighbours along one dimension.
  std::int64_t stride(std::string_view dim) const;

 private:
  std::size_t index_of(std::string_view name) const;
  std::vector<bool> mask_of(std::string_view dims) const;
  RankList group_from(std::int64_t first, const std::vector<bool>& mask) const;

  std::vector<std::string> names_;
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t rank_offset_ = 0, num_ranks_ = 1;
};

/// "tp-dp" as {"tp", "dp"}.
std::vector<std::string_view> split_dims(std::string_view dims);

}  // namespace megatron
