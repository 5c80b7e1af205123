// The mesh of ranks: an immutable value computed from the degrees of parallelism and the world
// size, as in Megatron Core's RankGenerator. It communicates nothing, and a query about one rank
// costs time in proportion to its answer only.
//
//   const Mesh mesh({.tp = 2, .pp = 2}, 8);
//   mesh.group(5, "dp");      // {5, 7}
//   mesh.coordinate(5, "tp");  // 1
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/mesh_sizes.h"
#include "megatron/parallel/grid.h"

namespace megatron {

/// A group split into equal consecutive parts. `inner` is the part that contains a rank; `outer`
/// holds the rank at the same position of every part.
struct GroupParts {
  RankList inner, outer;
};

/// Axes are tp, cp, dp and pp of the dense layers, etp, ep, edp (and the same pp) of the experts,
/// products within one of the two sets such as tp-pp or dp-cp in any order, and world. In a product
/// with ep, etp or edp, the names tp and dp mean etp and edp, as in Megatron's tp-ep-pp. Any other
/// name throws UserError.
class Mesh {
 public:
  /// Throws UserError when the sizes do not divide the world, when the order repeats or omits an
  /// axis, or when the pipeline groups of dense layers and experts would differ.
  Mesh(const MeshSizes& sizes, std::int64_t world_size);

  std::int64_t world_size() const { return dense_.num_ranks(); }
  const MeshSizes& sizes() const { return sizes_; }

  std::int64_t size(std::string_view axis) const;
  /// Returns the position of `rank` in its group.
  std::int64_t coordinate(std::int64_t rank, std::string_view axis) const;
  /// Returns the group of `rank`, ascending.
  RankList group(std::int64_t rank, std::string_view axis) const;
  std::int64_t num_groups(std::string_view axis) const;
  /// Returns all groups, ordered by their first ranks.
  std::vector<RankList> groups(std::string_view axis) const;

  /// Splits the group (dp-cp or edp) into `num_instances` equal parts: Megatron's instances of the
  /// distributed optimizer. Throws UserError when the parts would be unequal.
  GroupParts instance_parts(std::int64_t rank, std::string_view axis,
                            std::int64_t num_instances) const;

  /// Returns a table of every axis larger than 1 with its size, purpose and groups. In a large
  /// world it shows only the first few groups and the last.
  std::string table() const;

 private:
  struct GridDims {
    const Grid& grid;
    std::string dims;
  };
  GridDims grid_dims(std::string_view axis) const;

  MeshSizes sizes_;
  Grid dense_, expert_;
};

}  // namespace megatron
