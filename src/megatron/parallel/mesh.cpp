#include "megatron/parallel/mesh.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr std::array<std::string_view, 5> kAxes{"tp", "cp", "ep", "dp", "pp"};

/// Returns the axes in order, with omitted ones at the end. Throws UserError for unknown and
/// repeated ones.
std::vector<std::string> axes_in_order(const MeshSizes& sizes) {
  std::vector<std::string> axes;
  if (!sizes.order.empty()) {
    for (const std::string_view name : split_dims(sizes.order)) {
      if (std::find(kAxes.begin(), kAxes.end(), name) == kAxes.end() ||
          std::find(axes.begin(), axes.end(), name) != axes.end()) {
        throw UserError({"order " + sizes.order,
                         "'" + std::string(name) + "' is repeated or is not an axis",
                         "name tp, cp, ep, dp and pp once each"});
      }
      axes.emplace_back(name);
    }
  }
  for (const std::string_view name : kAxes) {
    if (std::find(axes.begin(), axes.end(), name) == axes.end()) axes.emplace_back(name);
  }
  return axes;
}

void check_named(const MeshSizes& sizes, std::string_view axis, std::int64_t size) {
  const auto named = split_dims(sizes.order);
  if (size == 1 || std::find(named.begin(), named.end(), axis) != named.end()) return;
  throw UserError({"order " + sizes.order,
                   detail::concatenate("omits ", axis, ", whose size is ", size),
                   "add it to the order"});
}

MeshSizes checked(const MeshSizes& sizes, std::int64_t world_size) {
  check_mesh_sizes(sizes, world_size).throw_if_any();
  return sizes;
}

/// Returns the grid of the dense layers, or that of the experts.
Grid grid_of(const MeshSizes& sizes, std::int64_t world_size, bool of_experts) {
  std::vector<std::int64_t> shape;
  std::vector<std::string> names;
  for (const std::string& axis : axes_in_order(sizes)) {
    if (axis == (of_experts ? "cp" : "ep")) continue;
    names.push_back((of_experts && (axis == "tp" || axis == "dp") ? "e" : "") + axis);
    shape.push_back(axis == "tp"   ? (of_experts ? sizes.expert_tp() : sizes.tp)
                    : axis == "cp" ? sizes.cp
                    : axis == "ep" ? sizes.ep
                    : axis == "pp" ? sizes.pp
                    : of_experts   ? expert_data_parallel_size(sizes, world_size)
                                   : data_parallel_size(sizes, world_size));
    check_named(sizes, axis, shape.back());
  }
  return Grid(shape, names);
}

bool is_expert_axis(std::string_view name) {
  return name == "ep" || name == "etp" || name == "edp";
}

/// Returns the dimensions of the expert grid for a product, where tp and dp mean etp and edp.
std::string expert_dims(const std::vector<std::string_view>& names) {
  return joined_text(names, "-", [](std::string_view name) {
    return name == "tp" ? "etp" : name == "dp" ? "edp" : name;
  });
}

struct Row {
  const char* axis;
  const char* purpose;
};

constexpr std::array kDenseRows{
    Row{"tp",
        "share each layer's matrices (and, with --sequence-parallel, the sequence between them)"},
    Row{"cp", "share each sequence"},
    Row{"dp", "hold the same weights, see different samples"},
    Row{"pp", "hold consecutive layers"},
    Row{"dp-cp", "sum gradients, share the distributed optimizer"},
    Row{"tp-cp", "share one sequence's activations"},
    Row{"tp-pp", "hold one replica of the model"},
};
constexpr std::array kExpertRows{
    Row{"etp", "share each expert's matrices"},
    Row{"ep", "hold different experts"},
    Row{"edp", "hold the same experts"},
    Row{"tp-ep", "exchange tokens"},
};

constexpr std::size_t kGroupsWidth = 60;

/// Returns "0-7" for consecutive ranks, "0 8 16" for a few, "0 8 .. 56" for many.
std::string text_of(const RankList& ranks) {
  if (ranks.size() > 2 &&
      ranks.back() - ranks.front() == static_cast<std::int64_t>(ranks.size()) - 1) {
    return std::to_string(ranks.front()) + "-" + std::to_string(ranks.back());
  }
  if (ranks.size() > 4)
    return std::to_string(ranks[0]) + " " + std::to_string(ranks[1]) + " .. " +
           std::to_string(ranks.back());
  return joined_text(ranks, " ");
}

/// Returns as many groups as fit on the line, and the last.
std::string groups_text(const Mesh& mesh, const char* axis) {
  const RankList first = mesh.group(0, axis), last = mesh.group(mesh.world_size() - 1, axis);
  if (first == last) return text_of(first);
  std::string cut = text_of(first) + " | .. | " + text_of(last);
  if (static_cast<std::size_t>(mesh.num_groups(axis)) > kGroupsWidth / 2) return cut;
  const std::string all = joined_text(mesh.groups(axis), " | ", text_of);
  return all.size() <= kGroupsWidth ? all : cut;
}

/// Returns whether all factors of a product are larger than 1. Otherwise its row repeats another.
bool is_worth_a_row(const Mesh& mesh, const char* axis) {
  const auto factors = split_dims(axis);
  const std::string_view axis_name = axis;
  const bool of_experts = axis_name == "tp-ep";
  const auto size = [&](std::string_view factor) {
    return mesh.size(of_experts && factor == "tp" ? "etp" : factor);
  };
  const auto above_1 = std::count_if(factors.begin(), factors.end(),
                                     [&](std::string_view factor) { return size(factor) > 1; });
  return above_1 == static_cast<std::ptrdiff_t>(factors.size());
}

/// Returns the rows that this mesh needs, with the text of their groups.
std::vector<std::pair<Row, std::string>> rows_of(const Mesh& mesh) {
  std::vector<std::pair<Row, std::string>> rows;
  const auto add = [&](const auto& candidates) {
    for (const Row& row : candidates) {
      if (is_worth_a_row(mesh, row.axis)) rows.emplace_back(row, groups_text(mesh, row.axis));
    }
  };
  add(kDenseRows);
  if (mesh.sizes().ep > 1 || mesh.sizes().expert_tp() != mesh.sizes().tp) add(kExpertRows);
  return rows;
}

}  // namespace

Mesh::Mesh(const MeshSizes& sizes, std::int64_t world_size)
    : sizes_(checked(sizes, world_size)),
      dense_(grid_of(sizes, world_size, /*of_experts=*/false)),
      expert_(grid_of(sizes, world_size, /*of_experts=*/true)) {
  if (sizes_.pp > 1 && dense_.stride("pp") != expert_.stride("pp")) {
    throw UserError({"order " + sizes_.order,
                     detail::concatenate("puts pipeline neighbours ", dense_.stride("pp"),
                                         " ranks apart in dense layers and ", expert_.stride("pp"),
                                         " in experts"),
                     "put pp last, or make tp x cp equal etp x ep"});
  }
}

Mesh::GridDims Mesh::grid_dims(std::string_view axis) const {
  if (axis == "world") return {dense_, "tp-cp-dp-pp"};
  const auto names = split_dims(axis);
  if (std::any_of(names.begin(), names.end(), is_expert_axis)) return {expert_, expert_dims(names)};
  return {dense_, std::string(axis)};
}

std::int64_t Mesh::size(std::string_view axis) const {
  const GridDims place = grid_dims(axis);
  return place.grid.size(place.dims);
}

std::int64_t Mesh::coordinate(std::int64_t rank, std::string_view axis) const {
  const GridDims place = grid_dims(axis);
  return place.grid.coordinate(rank, place.dims);
}

RankList Mesh::group(std::int64_t rank, std::string_view axis) const {
  const GridDims place = grid_dims(axis);
  return place.grid.group(rank, place.dims);
}

std::int64_t Mesh::num_groups(std::string_view axis) const { return world_size() / size(axis); }

std::vector<RankList> Mesh::groups(std::string_view axis) const {
  const GridDims place = grid_dims(axis);
  return place.grid.groups(place.dims);
}

GroupParts Mesh::instance_parts(std::int64_t rank, std::string_view axis,
                                std::int64_t num_instances) const {
  const RankList ranks = group(rank, axis);
  const auto size = static_cast<std::int64_t>(ranks.size());
  if (num_instances < 1 || size % num_instances != 0) {
    throw UserError(
        {"--num-distributed-optimizer-instances",
         detail::concatenate(num_instances, " does not divide the ", size, " ranks of ", axis),
         "use a divisor of the number of ranks"});
  }
  const std::int64_t part_size = size / num_instances;
  const auto position = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  GroupParts parts;
  const auto begin = ranks.begin() + position / part_size * part_size;
  parts.inner.assign(begin, begin + part_size);
  for (std::int64_t i = position % part_size; i < size; i += part_size)
    parts.outer.push_back(ranks[static_cast<std::size_t>(i)]);
  return parts;
}

std::string Mesh::table() const {
  std::ostringstream out;
  out << "mesh of " << world_size() << (world_size() == 1 ? " rank" : " ranks") << ", order "
      << sizes_.order << "\n";
  if (world_size() == 1) return out.str();
  const auto rows = rows_of(*this);
  std::size_t width = 6;
  for (const auto& [row, groups] : rows) width = std::max(width, groups.size());
  const auto add_line = [&](const std::string& axis, const std::string& size,
                            const std::string& groups, const std::string& purpose) {
    out << "  " << std::left << std::setw(7) << axis << std::right << std::setw(6) << size << "  "
        << std::left << std::setw(static_cast<int>(width)) << groups << "  " << purpose << "\n";
  };
  add_line("axis", "ranks", "groups", "these ranks");
  for (const auto& [row, groups] : rows)
    add_line(row.axis, std::to_string(this->size(row.axis)), groups, row.purpose);
  return out.str();
}

}  // namespace megatron
