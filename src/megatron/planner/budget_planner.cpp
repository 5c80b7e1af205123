#include "megatron/planner/budget_planner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/plan_layouts.h"
#include "megatron/planner/predict_memory_table.h"
#include "megatron/planner/rank_memory.h"

namespace megatron {
namespace {

constexpr int kMostCorrections = 8;

/// Returns recomputations(), and if `offloads` each of them with offload too.
Policies all_policies(const TransformerConfig& model, bool offloads) {
  Policies all = recomputations(model);
  const std::size_t count = all.size();
  for (std::size_t i = 0; offloads && i < count; ++i) {
    all.push_back(all[i]);
    all.back().offload = true;
  }
  return all;
}

}  // namespace

BudgetPlanner::BudgetPlanner(const BudgetRequest& request, Settings settings, double held_bytes)
    : request_(request),
      settings_(std::move(settings)),
      traces_(request.family),
      held_bytes_(held_bytes) {
  settings_.memory->activation_plan.clear();
  num_microbatches_ = first_num_microbatches(settings_, request_.rank.world.size);
  if (request_.offload_store == nullptr) return;
  Settings all = settings_;
  all.memory->activation_plan =
      activation_plan_text(for_every_layer(*settings_.model, {.offload = true}));
  for (const Rank& rank : pipeline_ranks(settings_, request_.rank.world.size)) {
    const RankMemory memory =
        predict_rank_memory(all, traces_, rank, request_.layout, num_microbatches_);
    const StepShape shape = step_shape(all, rank, request_.layout, num_microbatches_);
    const double model = memory.offloaded_state + memory.offloaded_weights,
                 both = model + shape.microbatches_in_flight * memory.offloaded_activations;
    if (both <= most_offloaded_bytes_) continue;
    offloaded_model_bytes_ = model;
    most_offloaded_bytes_ = both;
  }
}

PlanCandidate BudgetPlanner::candidate(Policies layers) const {
  double bytes = 0;
  for (const Rank& rank : pipeline_ranks(settings_, request_.rank.world.size))
    bytes = std::max(bytes, predict(rank, layers).peak);
  return {.micro_batch_size = settings_.training->micro_batch_size,
          .layers = std::move(layers),
          .bytes = bytes};
}

std::vector<PlanCandidate> BudgetPlanner::uniform_plans(bool offloads) const {
  std::vector<PlanCandidate> plans;
  for (const LayerPolicy& policy : all_policies(*settings_.model, offloads))
    plans.push_back(candidate(for_every_layer(*settings_.model, policy)));
  return plans;
}

PlanCandidate BudgetPlanner::plan(const PolicyTimes& times,
                                  const std::vector<PlanCandidate>& uniform) const {
  std::optional<PlanCandidate> best;
  const auto offer = [&](PlanCandidate offered) {
    offered.step_s = step_s(offered.layers, times);
    if (offered.bytes <= request_.budget_bytes && (!best || offered.step_s < best->step_s))
      best = std::move(offered);
  };
  for (const PlanCandidate& one : uniform) offer(one);
  Policies layers = for_every_layer(*settings_.model, {});
  const std::vector<Rank> ranks = pipeline_ranks(settings_, request_.rank.world.size);
  if (std::ranges::all_of(ranks, [&](const Rank& rank) { return plan_rank(rank, times, layers); }))
    offer(candidate(std::move(layers)));
  MEGATRON_CHECK(best.has_value(), "a budget is planned that no plan fits");
  return *std::move(best);
}

double BudgetPlanner::step_s(const Policies& layers, const PolicyTimes& times) const {
  double slowest = 0;
  for (std::int64_t rank = 0; rank < request_.layout.num_ranks; ++rank) {
    double seconds = 0;
    for (const std::int64_t layer : layers_of(request_.layout, rank))
      seconds += layer_s(layer, layers[static_cast<std::size_t>(layer)], times);
    for (std::int64_t chunk = 0; chunk < request_.layout.num_chunks; ++chunk) {
      const StageLayers& stage = request_.layout.of(rank, chunk);
      seconds += static_cast<double>(stage.num_embeddings(*settings_.model)) *
                 times.times[0].embedding.total_s();
      if (stage.has_output)
        seconds += static_cast<double>(1 + settings_.model->mtp_num_layers) *
                   times.times[0].output.total_s();
    }
    slowest = std::max(slowest, seconds);
  }
  return slowest * static_cast<double>(num_microbatches_);
}

double BudgetPlanner::kept_bytes(std::int64_t layer, const LayerPolicy& policy) const {
  return traces_
      .of(settings_, request_.rank, layer, {.layers = for_every_layer(*settings_.model, policy)})
      .kept_bytes();
}

MemoryTable BudgetPlanner::predict(const Rank& rank, const Policies& layers) const {
  Settings planned = settings_;
  planned.memory->activation_plan = activation_plan_text(layers);
  return predict_memory_table(planned, traces_, rank, request_.layout, num_microbatches_,
                              {.libraries = held_bytes_});
}

double BudgetPlanner::layer_s(std::int64_t layer, const LayerPolicy& policy,
                              const PolicyTimes& times) const {
  LayerPolicy recompute = policy;
  recompute.offload = false;
  return times.layer_s(policy, settings_.model->kind(layer),
                       policy.offload ? kept_bytes(layer, recompute) : 0);
}

BudgetPlanner::KindChoices BudgetPlanner::choices(std::int64_t layer, double in_flight,
                                                  const PolicyTimes& times) const {
  KindChoices kind;
  const double whole = kept_bytes(layer, {}), base = layer_s(layer, {}, times);
  const auto integer = [](double value) { return static_cast<std::int64_t>(std::ceil(value)); };
  for (const LayerPolicy& any : all_policies(*settings_.model, offloads())) {
    const LayerPolicy policy = for_layer(any, settings_.model->kind(layer));
    if (std::ranges::count(kind.policies, policy) > 0) continue;
    LayerPolicy recompute = policy;
    recompute.offload = false;
    const double kept = kept_bytes(layer, recompute);
    const double more_s = layer_s(layer, policy, times) - base;
    kind.choices.push_back(
        {.kept_bytes = policy.offload ? 0 : integer(in_flight * kept),
         .backward_bytes = integer(policy.offload ? whole + kept : whole - kept),
         .more_ns = integer(1e9 * more_s * static_cast<double>(num_microbatches_))});
    kind.policies.push_back(policy);
  }
  return kind;
}

// Predictions decide whether a choice fits. The search sees what exceeds the budget as less memory
// for activations.
bool BudgetPlanner::plan_rank(const Rank& rank, const PolicyTimes& times, Policies& layers) const {
  const std::vector<std::int64_t> own = layers_of(request_.layout, rank.pp.rank);
  const StepShape shape = step_shape(settings_, rank, request_.layout, num_microbatches_);
  std::vector<std::vector<ActivationChoice>> choices_of_kind;
  ByKind<Policies> policies;
  std::vector<std::size_t> kinds;
  std::int64_t kept = 0;
  for (const std::int64_t layer : own) {
    kinds.push_back(policies.index(settings_.model->kind(layer)));
    if (kinds.back() == choices_of_kind.size()) {
      KindChoices made = choices(layer, shape.microbatches_in_flight, times);
      choices_of_kind.push_back(std::move(made.choices));
      policies.entries.back().second = std::move(made.policies);
    }
    kept += choices_of_kind[kinds.back()].front().kept_bytes;
  }
  // Predictions differ from the sums that the search knows, so the memory that it may use is
  // corrected by the difference, down and up, until a plan comes again.
  double available = request_.budget_bytes - predict(rank, layers).peak + static_cast<double>(kept);
  std::optional<Policies> best;
  std::int64_t best_ns = 0;
  std::set<std::vector<std::size_t>> seen;
  for (int correction = 0; correction < kMostCorrections; ++correction) {
    const auto chosen =
        choose_activations(kinds, choices_of_kind, static_cast<std::int64_t>(available));
    if (!chosen || !seen.insert(chosen->choices).second) break;
    for (std::size_t i = 0; i < own.size(); ++i)
      layers[static_cast<std::size_t>(own[i])] =
          policies.entries[kinds[i]].second[chosen->choices[i]];
    const double excess = predict(rank, layers).peak - request_.budget_bytes;
    if (excess <= 0 && (!best || chosen->more_ns < best_ns)) {
      best = layers;
      best_ns = chosen->more_ns;
    }
    available = excess > 0 ? std::min(available, static_cast<double>(chosen->bytes)) - excess - 1
                           : available - excess;
  }
  if (!best) return false;
  layers = *std::move(best);
  return true;
}

}  // namespace megatron
