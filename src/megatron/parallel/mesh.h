// Who works with whom: an immutable value computed from the degrees of parallelism and the size of
// the world, as Megatron Core's RankGenerator does for every rank at once. Nothing is communicated,
// and a question on one rank costs no more than its answer, in a world of any size.
//
//   const Mesh mesh({.tp = 2, .pp = 2}, 8);
//   mesh.group(5, "dp");      // {5, 7}
//   mesh.coordinate(5, "tp");  // 1
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/mesh_sizes.h"
#include "megatron/parallel/grid.h"

namespace megatron {

/// A group cut into equal consecutive parts: the part that holds a rank, and the ranks at the same
/// place in every part.
struct GroupParts {
  RankList inner, outer;
};

/// Axes are tp, cp, dp, pp of the dense layers, etp, ep, edp (and the same pp) of the experts,
/// products of one or the other such as tp-pp or dp-cp, in any order, and world. In a product with
/// ep, etp or edp, tp and dp mean etp and edp, as in Megatron's tp-ep-pp. UserError for other
/// names.
class Mesh {
 public:
  /// UserError when the sizes do not divide the world, the order names an axis twice or leaves one
  /// out, or the pipeline groups of dense layers and experts would differ.
  Mesh(const MeshSizes& sizes, std::int64_t world_size);

  std::int64_t world_size() const { return dense_.num_ranks(); }
  const MeshSizes& sizes() const { return sizes_; }

  std::int64_t size(std::string_view axis) const;
  /// The position of `rank` in its group.
  std::int64_t coordinate(std::int64_t rank, std::string_view axis) const;
  /// The group of `rank`, ascending.
  RankList group(std::int64_t rank, std::string_view axis) const;
  std::int64_t num_groups(std::string_view axis) const;
  /// All groups, in the order of their first ranks.
  std::vector<RankList> groups(std::string_view axis) const;

  /// Megatron's instances of the distributed optimizer: the group (dp-cp, edp) in `num_instances`
  /// parts. UserError when they are not equal.
  GroupParts instance_parts(std::int64_t rank, std::string_view axis,
                            std::int64_t num_instances) const;
  /// The part of the group on the node of `rank`, and one rank of each node; nothing when the nodes
  /// (`ranks_per_node` consecutive ranks each) hold unequal parts.
  std::optional<GroupParts> node_parts(std::int64_t rank, std::string_view axis,
                                       std::int64_t ranks_per_node) const;

  /// The ranks of the pipeline of `rank` that hold the word embeddings: first and last stage.
  RankList embedding_group(std::int64_t rank) const;
  /// The rank of the pipeline of `rank` that holds the position embeddings: the first stage.
  RankList position_embedding_group(std::int64_t rank) const;

  /// For people: every axis above 1 with its size, its purpose and its groups (the first few and
  /// the last in a large world).
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
