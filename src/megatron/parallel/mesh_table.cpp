// Formats a mesh as a table.
#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "megatron/base/words.h"
#include "megatron/parallel/mesh.h"

namespace megatron {
namespace {

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
