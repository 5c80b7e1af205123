#include "megatron/config/balance.h"

#include <cmath>
#include <cstdlib>
#include <tuple>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// The cost of a stage or rank as a function of its number of layers.
struct Load {
  double fixed_s = 0;
  std::int64_t num_layers = 0;
  double with(std::int64_t layers, double layer_s) const {
    return fixed_s + static_cast<double>(layers) * layer_s;
  }
};

/// Distributes the layers. All layers cost the same, so only their number per stage matters, and
/// assigning them one by one to the cheapest stage is optimal.
class LayerBalancer {
 public:
  LayerBalancer(const LayerCosts& costs, std::int64_t num_ranks, std::int64_t num_chunks,
                ChunkOrder order)
      : layer_s_(costs.layer_s),
        stages_(static_cast<std::size_t>(num_ranks * num_chunks)),
        ranks_(static_cast<std::size_t>(num_ranks)) {
    for (std::size_t stage = 0; stage < stages_.size(); ++stage)
      rank_of_stage_.push_back(
          static_cast<std::size_t>(rank_of(order, num_ranks, static_cast<std::int64_t>(stage))));
    add_fixed(0, costs.embedding_s);
    add_fixed(stages_.size() - 1, costs.output_s);
    for (std::size_t stage = 1; stage + 1 < stages_.size(); ++stage) give(stage);
  }

  /// The number of layers that the stages between the first and the last have initially.
  std::int64_t num_given() const {
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(stages_.size()) - 2);
  }

  std::vector<Load> run(std::int64_t num_layers) {
    const std::int64_t left = num_layers - num_given();
    const std::vector<std::int64_t> most = most_layers_of_ranks(left);
    for (std::int64_t i = 0; i < left; ++i) give(lightest_stage(most));
    return stages_;
  }

 private:
  void add_fixed(std::size_t stage, double seconds) {
    stages_[stage].fixed_s += seconds;
    ranks_[rank_of_stage_[stage]].fixed_s += seconds;
  }

  void give(std::size_t stage) {
    ++stages_[stage].num_layers;
    ++ranks_[rank_of_stage_[stage]].num_layers;
  }

  double after_one_more(const Load& load) const { return load.with(load.num_layers + 1, layer_s_); }

  /// The number of layers that each rank may hold without exceeding the minimal cost of the most
  /// expensive rank.
  std::vector<std::int64_t> most_layers_of_ranks(std::int64_t left) const {
    std::vector<Load> ranks = ranks_;
    double bound = 0;
    for (std::int64_t i = 0; i < left; ++i) {
      std::size_t best = 0;
      for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
        if (after_one_more(ranks[rank]) < after_one_more(ranks[best])) best = rank;
      }
      ++ranks[best].num_layers;
    }
    for (const Load& rank : ranks) bound = std::max(bound, rank.with(rank.num_layers, layer_s_));
    std::vector<std::int64_t> most;
    for (Load& rank : ranks) {
      while (after_one_more(rank) <= bound && rank.num_layers < left + num_given())
        ++rank.num_layers;
      most.push_back(rank.num_layers);
    }
    return most;
  }

  /// Returns twice the distance of a stage from the middle of the model. Ties favor the front.
  std::int64_t distance(std::size_t stage) const {
    return std::abs(static_cast<std::int64_t>(2 * stage + 1) -
                    static_cast<std::int64_t>(stages_.size()));
  }

  std::size_t lightest_stage(const std::vector<std::int64_t>& most) const {
    std::size_t best = stages_.size();
    const auto key = [&](std::size_t stage) {
      return std::tuple(after_one_more(stages_[stage]),
                        after_one_more(ranks_[rank_of_stage_[stage]]), distance(stage), stage);
    };
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      const std::size_t rank = rank_of_stage_[stage];
      if (ranks_[rank].num_layers >= most[rank]) continue;
      if (best == stages_.size() || key(stage) < key(best)) best = stage;
    }
    MEGATRON_CHECK(best < stages_.size(), "no stage of ", stages_.size(), " takes a layer");
    return best;
  }

  double layer_s_;
  std::vector<Load> stages_, ranks_;
  std::vector<std::size_t> rank_of_stage_;
};

}  // namespace

std::vector<StageLayers> balanced_stages(std::int64_t num_layers, const LayerCosts& costs,
                                         std::int64_t num_ranks, std::int64_t num_chunks,
                                         ChunkOrder order) {
  const bool readable = std::isfinite(costs.embedding_s) && std::isfinite(costs.layer_s) &&
                        std::isfinite(costs.output_s);
  MEGATRON_CHECK(readable && costs.embedding_s >= 0 && costs.layer_s > 0 && costs.output_s >= 0,
                 "costs must be positive: embedding ", costs.embedding_s, " s, layer ",
                 costs.layer_s, " s, output ", costs.output_s, " s");
  LayerBalancer balance(costs, num_ranks, num_chunks, order);
  MEGATRON_CHECK(num_layers >= balance.num_given(), num_layers,
                 " layers are too few: the stages need ", balance.num_given());
  std::vector<StageLayers> stages;
  std::int64_t first = 0;
  for (const Load& load : balance.run(num_layers)) {
    stages.push_back({.first_layer = first, .num_layers = load.num_layers});
    first += load.num_layers;
  }
  stages.front().has_embedding = stages.back().has_output = true;
  return stages;
}

}  // namespace megatron
