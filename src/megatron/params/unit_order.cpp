#include "megatron/params/unit_order.h"

#include <algorithm>
#include <utility>

namespace megatron {

void UnitOrder::begin() {
  if (!current_.empty()) {
    const auto known = std::ranges::find(passes_, current_);
    if (known != passes_.end()) passes_.erase(known);
    passes_.insert(passes_.begin(), std::exchange(current_, {}));
    if (passes_.size() > kMaxPasses) passes_.pop_back();
  }
  matches_.assign(passes_.size(), true);
}

void UnitOrder::read(std::size_t unit) {
  const std::size_t place = current_.size();
  for (std::size_t i = 0; i < passes_.size(); ++i)
    matches_[i] = matches_[i] && place < passes_[i].size() && passes_[i][place] == unit;
  current_.push_back(unit);
}

std::optional<std::size_t> UnitOrder::next(std::size_t later) const {
  const auto match = std::ranges::find(matches_, true);
  if (match == matches_.end()) return std::nullopt;
  const std::vector<std::size_t>& pass =
      passes_[static_cast<std::size_t>(match - matches_.begin())];
  const std::size_t place = current_.size() + later;
  return place < pass.size() ? std::optional(pass[place]) : std::nullopt;
}

}  // namespace megatron
