#include "megatron/parallel/hyper_comm_grid.h"

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string key_of(const Grid& grid, std::string_view dims, const std::string& view) { return view + "/" + grid.canonical(dims); }

}  // namespace

HyperCommGrid::HyperCommGrid(Grid grid, Communicators& communicators) : communicators_(communicators) {
  const std::int64_t end = grid.rank_offset() + grid.num_ranks();
  if (end > communicators.world_size()) {
    throw UserError({"grid", detail::concatenate("needs ranks ", grid.rank_offset(), " to ", end - 1, ", the world has ", communicators.world_size()),
                     "lower its sizes or its offset, or start more ranks"});
  }
  views_.emplace("", std::move(grid));
}

void HyperCommGrid::register_view(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<std::string>& dim_names) {
  Grid view(shape, dim_names, grid().rank_offset());
  if (view.num_ranks() != grid().num_ranks()) {
    throw UserError(
        {"view " + name, detail::concatenate("has ", view.num_ranks(), " ranks, the grid ", grid().num_ranks()), "factor the same ranks"});
  }
  if (!views_.emplace(name, std::move(view)).second) throw UserError({"view " + name, "exists already", "choose another name"});
}

const Grid& HyperCommGrid::grid(const std::string& view) const {
  const auto found = views_.find(view);
  if (found == views_.end()) throw UserError({"view " + view, "does not exist", "call register_view first"});
  return found->second;
}

std::shared_ptr<Comm> HyperCommGrid::create_pg(std::string_view dims, const std::string& view) {
  const Grid& of_view = grid(view);
  const std::string key = key_of(of_view, dims, view);
  if (groups_.contains(key)) throw UserError({"group " + std::string(dims), "has been made before", "fetch it with get_pg"});
  const std::int64_t rank = communicators_.rank();
  if (!of_view.contains(rank)) return groups_[key] = nullptr;
  return groups_[key] = communicators_.group(of_view.group(rank, dims), of_view.canonical(dims));
}

std::shared_ptr<Comm> HyperCommGrid::get_pg(std::string_view dims, const std::string& view) const {
  const auto found = groups_.find(key_of(grid(view), dims, view));
  if (found == groups_.end()) throw UserError({"group " + std::string(dims), "has not been made", "call create_pg first"});
  return found->second;
}

}  // namespace megatron
