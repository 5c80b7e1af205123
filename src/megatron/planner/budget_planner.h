// Plans of recomputation and offload at one micro-batch size: what the rank that needs most is
// predicted to need with each, and the one of the least time within a budget.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/planner/choose_activations.h"
#include "megatron/planner/layer_trace.h"
#include "megatron/planner/memory_budget.h"
#include "megatron/planner/memory_table.h"
#include "megatron/planner/policy_times.h"

namespace megatron {

/// A plan and what it is predicted to need and to take.
struct PlanCandidate {
  std::int64_t micro_batch_size = 1;
  Policies layers;
  double bytes = 0, step_s = 0;
};

/// Plans at one micro-batch size.
class BudgetPlanner {
 public:
  /// `held_bytes` is what the rank that holds most holds besides what is predicted. `request` must
  /// outlive the planner.
  BudgetPlanner(const BudgetRequest& request, Settings settings, double held_bytes);

  /// Returns whether layers may offload: the space suffices even if all of them do.
  bool offloads() const {
    return request_.offload_store != nullptr &&
           most_offloaded_bytes_ <= request_.offload_space_bytes;
  }
  /// Returns what a rank offloads at most, and the part of the optimizer's state and of weights.
  double most_offloaded_bytes() const { return most_offloaded_bytes_; }
  double offloaded_model_bytes() const { return offloaded_model_bytes_; }

  /// Returns a plan with the predicted bytes of the rank that needs most.
  PlanCandidate candidate(Policies layers) const;

  /// Returns the plans with the same policy for every layer; their times are unknown.
  std::vector<PlanCandidate> uniform_plans(bool offloads) const;

  /// Returns the plan of the least time within the budget: the search's or one of `uniform`, of
  /// which one at least must be within it.
  PlanCandidate plan(const PolicyTimes& times, const std::vector<PlanCandidate>& uniform) const;

  /// Returns the time of a step on the slowest rank, without the pipeline's bubble.
  double step_s(const Policies& layers, const PolicyTimes& times) const;

  std::int64_t num_microbatches() const { return num_microbatches_; }
  const Settings& settings() const { return settings_; }

  /// Returns what a layer keeps of one microbatch with a policy, offloaded or not.
  double kept_bytes(std::int64_t layer, const LayerPolicy& policy) const;

 private:
  /// The choices of the layers of one kind, and the policy of each.
  struct KindChoices {
    std::vector<ActivationChoice> choices;
    Policies policies;
  };

  /// Returns the predicted memory of a rank of the pipeline with a plan for all layers.
  MemoryTable predict(const Rank& rank, const Policies& layers) const;
  double layer_s(std::int64_t layer, const LayerPolicy& policy, const PolicyTimes& times) const;
  /// Returns the choices of layers like `layer`.
  KindChoices choices(std::int64_t layer, double in_flight, const PolicyTimes& times) const;
  /// Chooses for the layers of one rank of the pipeline. Returns false if nothing fits.
  bool plan_rank(const Rank& rank, const PolicyTimes& times, Policies& layers) const;

  const BudgetRequest& request_;
  Settings settings_;
  mutable LayerTraces traces_;
  double held_bytes_, most_offloaded_bytes_ = 0, offloaded_model_bytes_ = 0;
  std::int64_t num_microbatches_ = 1;
};

}  // namespace megatron
