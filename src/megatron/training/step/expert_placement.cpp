#include "megatron/training/step/expert_placement.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "megatron/base/format.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

ExpertMoves moves_between(const ExpertOrder& before, const ExpertOrder& after, const Axis& ep) {
  const auto places = static_cast<std::int64_t>(before.size()) / ep.size;
  const auto rank_of = [&](const ExpertOrder& order, std::int64_t expert) {
    return (std::ranges::find(order, expert) - order.begin()) / places;
  };
  ExpertMoves moves{.to = {}, .from = {}, .ep = ep};
  for (std::int64_t place = 0; place < places; ++place) {
    const auto here = static_cast<std::size_t>(ep.rank * places + place);
    moves.to.push_back(rank_of(after, before[here]));
    moves.from.push_back(rank_of(before, after[here]));
  }
  return moves;
}

/// A part of a flat tensor that belongs to the expert at a place.
struct Part {
  std::int64_t place, begin, count;
};

/// Returns the parts of a piece in ascending order. All ranks of ep have the same.
std::vector<Part> parts_of(const ParameterPiece& piece, std::int64_t num_places) {
  const std::int64_t row = num_elements(piece.parameter->local_shape()) / num_places;
  std::vector<Part> parts;
  for (std::int64_t place = 0; place < num_places; ++place) {
    const std::int64_t begin = std::max(place * row, piece.first),
                       end = std::min((place + 1) * row, piece.first + piece.count);
    if (begin < end) parts.push_back({place, begin - piece.first, end - begin});
  }
  return parts;
}

/// Exchanges the experts of `flat`, which has the layout of `piece`. Collective over ep.
void exchange_experts(const at::Tensor& flat, const ParameterPiece& piece,
                      const ExpertMoves& moves) {
  const Axis& ep = moves.ep;
  const std::vector<Part> parts = parts_of(piece, static_cast<std::int64_t>(moves.to.size()));
  RowCounts counts{.out = std::vector<std::int64_t>(static_cast<std::size_t>(ep.size), 0),
                   .in = std::vector<std::int64_t>(static_cast<std::size_t>(ep.size), 0)};
  std::vector<at::Tensor> sent{flat.narrow(0, 0, 0)};
  const auto for_each_with = [&](const std::vector<std::int64_t>& ranks, auto&& use) {
    for (std::int64_t rank = 0; rank < ep.size; ++rank) {
      for (const Part& part : parts) {
        if (ranks[static_cast<std::size_t>(part.place)] == rank && rank != ep.rank)
          use(static_cast<std::size_t>(rank), part);
      }
    }
  };
  for_each_with(moves.to, [&](std::size_t rank, const Part& part) {
    sent.push_back(flat.narrow(0, part.begin, part.count));
    counts.in[rank] += part.count;
  });
  for_each_with(moves.from,
                [&](std::size_t rank, const Part& part) { counts.out[rank] += part.count; });
  const at::Tensor received = all_to_all(ep, at::cat(sent), "expert placement", counts);
  std::int64_t next = 0;
  for_each_with(moves.from, [&](std::size_t, const Part& part) {
    flat.narrow(0, part.begin, part.count).copy_(received.narrow(0, next, part.count));
    next += part.count;
  });
}

/// Moves the experts of this rank's layers: their main weights, the optimizer's state, and
/// the weights that are rounded from them or frozen. Collective over ep.
void move_experts(const std::map<const Parameter*, const ExpertMoves*>& moves, Optimizer& optimizer,
                  ParamStore& weights) {
  MainParameters& main = optimizer.main_parameters();
  main.wait_all_gather_params();
  const auto move = [&](const ParameterPiece& piece, const at::Tensor& flat) {
    const auto found = moves.find(piece.parameter);
    if (found != moves.end()) exchange_experts(flat, piece, *found->second);
  };
  for (std::size_t i = 0; i < main.pieces().size(); ++i) {
    if (!moves.contains(main.pieces()[i].parameter)) continue;
    at::Tensor flat = main.read(i);
    move(main.pieces()[i], flat);
    if (!main.tensors()[i].defined()) main.write(i, flat);
  }
  optimizer.visit_state([&](const ParameterPiece& piece, const std::string& /*state*/,
                            at::Tensor& flat) { move(piece, flat); });
  for (const ParameterPiece& piece : weights.kept_pieces())
    if (!piece.parameter->is_trained())
      weights.change_kept(piece, [&](const at::Tensor& flat) { move(piece, flat); });
  main.copy_main_params_to_model_params();
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

void ExpertPlacement::observe(const std::vector<LayerRouting>& routing) {
  if (plan_.settings.model->moe.expert_placement_interval == 0) return;
  for (const LayerRouting& layer : routing) {
    auto& [order, load] = layers_[layer.layer];
    if (order.empty()) order = ascending_order(static_cast<std::int64_t>(layer.load.size()));
    load.resize(layer.load.size(), 0);
    std::ranges::transform(load, layer.load, load.begin(), std::plus<>());
  }
}

void ExpertPlacement::apply(const std::map<std::int64_t, ExpertMoves>& moves) {
  std::map<const Parameter*, const ExpertMoves*> by_parameter;
  for (MoeLayer* layer : moe_layers(*state_.model)) {
    const auto found = moves.find(layer->index());
    if (found == moves.end()) continue;
    for (const Parameter* parameter : declared_parameters(layer->experts()))
      by_parameter[parameter] = &found->second;
    layer->place_experts(layers_.at(layer->index()).order);
  }
  move_experts(by_parameter, *state_.optimizer, *state_.weights);
}

std::optional<std::string> ExpertPlacement::move_if_due(std::int64_t iteration) {
  const std::int64_t interval = plan_.settings.model->moe.expert_placement_interval;
  if (interval == 0 || iteration % interval != 0 || layers_.empty()) return std::nullopt;
  const Axis& ep = plan_.rank.ep;
  double before = 0, after = 0, mean = 0;
  std::int64_t moved = 0, num_experts = 0;
  std::map<std::int64_t, ExpertMoves> moves;
  for (auto& [index, layer] : layers_) {
    ExpertOrder order = balanced_order(layer.order, layer.load, ep.size);
    before += largest_rank_load(layer.order, layer.load, ep.size);
    after += largest_rank_load(order, layer.load, ep.size);
    mean += sum_of(layer.load) / static_cast<double>(ep.size);
    for (std::size_t i = 0; i < order.size(); ++i) moved += order[i] != layer.order[i] ? 1 : 0;
    num_experts += static_cast<std::int64_t>(order.size());
    const bool changes = order != layer.order;
    if (changes) moves[index] = moves_between(layer.order, order, ep);
    layer.order = std::move(order);
    layer.load.clear();
  }
  if (!moves.empty()) apply(moves);
  const double unit = mean > 0 ? mean : 1;
  return format(
      "expert placement after iteration %lld: the busiest rank of a layer has %.3f -> %.3f times "
      "the mean load; the time of the experts falls by %.1f%% (simulated); %lld of %lld experts "
      "moved",
      static_cast<long long>(iteration), before / unit, after / unit,
      before > 0 ? 100 * (1 - after / before) : 0.0, static_cast<long long>(moved),
      static_cast<long long>(num_experts));
}

}  // namespace megatron
