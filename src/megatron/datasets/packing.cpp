#include "megatron/datasets/packing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::array kNames = {"line", "bfd", "bfd_split"};

/// Rows by their free space. Of rows with equal space, the one with the lowest number comes first.
class OpenRows {
 public:
  explicit OpenRows(std::int64_t capacity)
      : rows_(static_cast<std::size_t>(std::min(capacity, kTable))) {}

  void add(std::int64_t space, std::uint32_t row) {
    auto& rows = rows_with(space);
    if (rows.empty()) spaces_.insert(space);
    rows.push_back(row);
    std::ranges::push_heap(rows, std::greater());
  }

  /// Removes the row with the least space that is at least `length`, and sets its space and number.
  /// Returns false if there is none.
  bool take(std::int64_t length, std::int64_t& space, std::uint32_t& row) {
    const auto best = spaces_.lower_bound(length);
    if (best == spaces_.end()) return false;
    space = *best;
    auto& rows = rows_with(space);
    std::ranges::pop_heap(rows, std::greater());
    row = rows.back();
    rows.pop_back();
    if (rows.empty()) spaces_.erase(best);
    return true;
  }

 private:
  static constexpr std::int64_t kTable = 1 << 20;

  std::vector<std::uint32_t>& rows_with(std::int64_t space) {
    return space < kTable ? rows_[static_cast<std::size_t>(space)] : others_[space];
  }

  std::vector<std::vector<std::uint32_t>> rows_;               ///< a heap for each space
  std::map<std::int64_t, std::vector<std::uint32_t>> others_;  ///< the same for large spaces
  std::set<std::int64_t> spaces_;                              ///< whose heaps are not empty
};

/// Returns the numbers of the sequences, the longest first and equal ones in order.
std::vector<std::uint32_t> by_decreasing_length(std::span<const std::int32_t> lengths,
                                                std::int64_t capacity) {
  std::int32_t longest = 0;
  for (const std::int32_t length : lengths) {
    MEGATRON_CHECK(length > 0 && length <= capacity, "a sequence of ", length, " for rows of ",
                   capacity);
    longest = std::max(longest, length);
  }
  std::vector<std::uint32_t> next(static_cast<std::size_t>(longest) + 1, 0);
  for (const std::int32_t length : lengths) ++next[static_cast<std::size_t>(longest - length)];
  std::uint32_t begin = 0;
  for (std::uint32_t& count : next) begin += std::exchange(count, begin);
  std::vector<std::uint32_t> order(lengths.size());
  for (std::uint32_t item = 0; item < lengths.size(); ++item)
    order[next[static_cast<std::size_t>(longest - lengths[item])]++] = item;
  return order;
}

}  // namespace

std::string_view packing_strategy_name(PackingStrategy strategy) {
  return kNames[static_cast<std::size_t>(strategy)];
}

PackingStrategy packing_strategy(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  MEGATRON_CHECK(found != kNames.end(), "no packing strategy is called ", name);
  return kPackingStrategies[static_cast<std::size_t>(found - kNames.begin())];
}

std::optional<PackingStrategy> document_packing_strategy(std::string_view name) {
  if (name == "wrapped") return std::nullopt;
  return packing_strategy(name);
}

Packing pack_best_fit_decreasing(std::span<const std::int32_t> lengths, std::int64_t capacity) {
  MEGATRON_CHECK(lengths.size() < std::numeric_limits<std::uint32_t>::max(), lengths.size(),
                 " sequences");
  // A row is named by its longest item. `row_of` names the row of every item.
  std::vector<std::uint32_t> row_of(lengths.size()), places(lengths.size(), 0);
  OpenRows open(capacity);
  for (const std::uint32_t item : by_decreasing_length(lengths, capacity)) {
    std::int64_t space = capacity;
    row_of[item] = item;
    open.take(lengths[item], space, row_of[item]);
    ++places[row_of[item]];
    if (space > lengths[item]) open.add(space - lengths[item], row_of[item]);
  }

  // The counts of items become the places of the next item of each row.
  Packing packing;
  for (std::uint32_t& place : places) {
    if (place == 0) continue;
    const std::size_t begin = packing.begins.back();
    packing.begins.push_back(begin + place);
    place = static_cast<std::uint32_t>(begin);
  }
  packing.items.resize(lengths.size());
  for (std::uint32_t item = 0; item < lengths.size(); ++item)
    packing.items[places[row_of[item]]++] = item;
  return packing;
}

}  // namespace megatron
