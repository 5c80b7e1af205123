// Which rank holds which experts, and how to even out their loads. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

/// The experts of a layer in the order of the ranks of ep, each of which has the same number:
/// element rank · experts_per_rank + place is the expert at a place of a rank.
using ExpertOrder = std::vector<std::int64_t>;

/// Returns 0, 1, 2 …
ExpertOrder ascending_order(std::int64_t num_experts);

/// Returns the largest load of a rank. load[e] is the load of expert e.
double largest_rank_load(const ExpertOrder& order, std::span<const double> load,
                         std::int64_t num_ranks);

/// Returns an order with a smaller largest load of a rank, or `order` when none is found that is
/// better by 1 % or more. An expert keeps its place within a rank, so that the same elements of the
/// ranks' tensors are exchanged, whatever a distributed optimizer divides. Equal on all ranks.
ExpertOrder balanced_order(const ExpertOrder& order, std::span<const double> load,
                           std::int64_t num_ranks);

}  // namespace megatron
