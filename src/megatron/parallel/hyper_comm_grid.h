// Groups over a grid that one builds by hand, as with Megatron Core's HyperCommGrid: each made once, on demand.
//
//   HyperCommGrid grid(Grid({2, 3, 4, 5}, {"tp", "cp", "pp", "dp"}), communicators);
//   grid.create_pg("cp-dp");
//   grid.get_pg("cp-dp")->all_reduce(gradients, "gradients");
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/parallel/communicators.h"
#include "megatron/parallel/grid.h"

namespace megatron {

/// Not shared between threads. A view names another factorisation of the same ranks, "" the grid itself.
class HyperCommGrid {
 public:
  /// UserError when the grid reaches beyond the world. `communicators` outlives this object.
  HyperCommGrid(Grid grid, Communicators& communicators);

  /// Adds a factorisation, such as an expert grid {etp, ep, edp} over the ranks of {tp, dp}. UserError when its size differs or the name is taken.
  void register_view(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<std::string>& dim_names);

  /// Makes this rank's group of `dims`. Collective over the grid. Null for a group of one rank, and for ranks outside of the grid. UserError when
  /// the set was made before, in whatever order it is spelled.
  std::shared_ptr<Comm> create_pg(std::string_view dims, const std::string& view = "");
  /// What create_pg gave. UserError when it was never called for this set.
  std::shared_ptr<Comm> get_pg(std::string_view dims, const std::string& view = "") const;
  /// All groups of `dims`.
  std::vector<RankList> get_rank_enum(std::string_view dims, const std::string& view = "") const { return grid(view).groups(dims); }
  /// UserError for an unknown view.
  const Grid& grid(const std::string& view = "") const;

 private:
  std::map<std::string, Grid> views_;
  std::map<std::string, std::shared_ptr<Comm>> groups_;  ///< by view/dims
  Communicators& communicators_;
};

}  // namespace megatron
