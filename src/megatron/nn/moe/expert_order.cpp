#include "megatron/nn/moe/expert_order.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace megatron {
namespace {

constexpr double kLeastGain = 0.01;

/// An order under change, with the load of each rank.
class Placement {
 public:
  Placement(ExpertOrder order, std::span<const double> load, std::int64_t num_ranks)
      : order_(std::move(order)),
        load_(load),
        num_ranks_(num_ranks),
        num_places_(static_cast<std::int64_t>(order_.size()) / num_ranks) {
    count();
  }

  const ExpertOrder& order() const { return order_; }
  double largest() const { return *std::ranges::max_element(rank_load_); }

  /// Gives the experts of each place anew, the place with the largest expert first: the larger the
  /// expert, the less its rank has so far.
  void assign_all() {
    std::vector<std::int64_t> places(static_cast<std::size_t>(num_places_));
    std::iota(places.begin(), places.end(), 0);
    std::ranges::stable_sort(places, std::greater<>(), [&](std::int64_t place) {
      double most = 0;
      for (std::int64_t rank = 0; rank < num_ranks_; ++rank) most = std::max(most, at(rank, place));
      return most;
    });
    rank_load_.assign(static_cast<std::size_t>(num_ranks_), 0);
    for (const std::int64_t place : places) assign(place);
  }

  /// Exchanges experts of the busiest rank with those of another rank while its load becomes
  /// smaller and the other's stays below it.
  void exchange_while_better() {
    while (const auto exchange = best_exchange()) {
      const auto [rank, other, place] = *exchange;
      std::swap(expert(rank, place), expert(other, place));
      count();
    }
  }

 private:
  struct Exchange {
    std::int64_t rank, other, place;
  };

  std::int64_t& expert(std::int64_t rank, std::int64_t place) {
    return order_[static_cast<std::size_t>(rank * num_places_ + place)];
  }
  double at(std::int64_t rank, std::int64_t place) {
    return load_[static_cast<std::size_t>(expert(rank, place))];
  }

  void count() {
    rank_load_.assign(static_cast<std::size_t>(num_ranks_), 0);
    for (std::size_t i = 0; i < order_.size(); ++i)
      rank_load_[i / static_cast<std::size_t>(num_places_)] +=
          load_[static_cast<std::size_t>(order_[i])];
  }

  void assign(std::int64_t place) {
    std::vector<std::int64_t> experts, ranks(static_cast<std::size_t>(num_ranks_));
    for (std::int64_t rank = 0; rank < num_ranks_; ++rank) experts.push_back(expert(rank, place));
    std::ranges::stable_sort(experts, std::greater<>(),
                             [&](std::int64_t e) { return load_[static_cast<std::size_t>(e)]; });
    std::iota(ranks.begin(), ranks.end(), 0);
    std::ranges::stable_sort(
        ranks, {}, [&](std::int64_t rank) { return rank_load_[static_cast<std::size_t>(rank)]; });
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      expert(ranks[i], place) = experts[i];
      rank_load_[static_cast<std::size_t>(ranks[i])] += load_[static_cast<std::size_t>(experts[i])];
    }
  }

  std::optional<Exchange> best_exchange() {
    const std::int64_t busiest = std::ranges::max_element(rank_load_) - rank_load_.begin();
    const double most = rank_load_[static_cast<std::size_t>(busiest)];
    std::optional<Exchange> best;
    double best_larger = most * (1 - 1e-9);  // a real step, so that rounding cannot repeat one
    for (std::int64_t other = 0; other < num_ranks_; ++other) {
      if (other == busiest) continue;
      for (std::int64_t place = 0; place < num_places_; ++place) {
        const double moved = at(busiest, place) - at(other, place);
        const double larger =
            std::max(most - moved, rank_load_[static_cast<std::size_t>(other)] + moved);
        if (larger >= best_larger) continue;
        best_larger = larger;
        best = {busiest, other, place};
      }
    }
    return best;
  }

  ExpertOrder order_;
  std::span<const double> load_;
  std::int64_t num_ranks_, num_places_;
  std::vector<double> rank_load_;
};

}  // namespace

ExpertOrder ascending_order(std::int64_t num_experts) {
  ExpertOrder order(static_cast<std::size_t>(num_experts));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

double largest_rank_load(const ExpertOrder& order, std::span<const double> load,
                         std::int64_t num_ranks) {
  return Placement(order, load, num_ranks).largest();
}

ExpertOrder balanced_order(const ExpertOrder& order, std::span<const double> load,
                           std::int64_t num_ranks) {
  Placement near(order, load, num_ranks), fresh(order, load, num_ranks);
  const double before = near.largest();
  near.exchange_while_better();
  fresh.assign_all();
  fresh.exchange_while_better();
  // The first moves fewer experts.
  const Placement& best = fresh.largest() < near.largest() * (1 - kLeastGain) ? fresh : near;
  return best.largest() <= before * (1 - kLeastGain) ? best.order() : order;
}

}  // namespace megatron
