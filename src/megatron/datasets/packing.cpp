#include "megatron/datasets/packing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

Packing pack_best_fit_decreasing(std::span<const std::int32_t> lengths, std::int64_t capacity) {
  MEGATRON_CHECK(lengths.size() < std::numeric_limits<std::uint32_t>::max(), lengths.size(),
                 " sequences");
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(
      order, [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; });

  // A row is named by its longest item. `row_of` names the row of every item.
  std::vector<std::uint32_t> row_of(lengths.size()), sizes(lengths.size(), 0);
  std::set<std::pair<std::int64_t, std::uint32_t>> open;  // free space and row
  for (const std::uint32_t item : order) {
    const std::int64_t length = lengths[item];
    MEGATRON_CHECK(length > 0 && length <= capacity, "a sequence of ", length, " for rows of ",
                   capacity);
    const auto best = open.lower_bound({length, 0});
    std::int64_t space = capacity;
    row_of[item] = item;
    if (best != open.end()) {
      std::tie(space, row_of[item]) = *best;
      open.erase(best);
    }
    ++sizes[row_of[item]];
    if (space > length) open.emplace(space - length, row_of[item]);
  }

  Packing packing;
  std::vector<std::size_t> next(lengths.size());  // where the next item of a row goes
  for (std::size_t row = 0; row < sizes.size(); ++row) {
    if (sizes[row] == 0) continue;
    next[row] = packing.begins.back();
    packing.begins.push_back(next[row] + sizes[row]);
  }
  packing.items.resize(lengths.size());
  for (std::uint32_t item = 0; item < lengths.size(); ++item)
    packing.items[next[row_of[item]]++] = item;
  return packing;
}

}  // namespace megatron
