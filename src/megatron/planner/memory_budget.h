// Chooses recomputation, offload and the micro-batch size of a run so that every rank stays within
// a budget and a step takes the least time: by measured times of the layers, predicted sizes, and
// an exact search (choose_activations.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/models/model_family.h"
#include "megatron/ops/offload_store.h"

namespace megatron {

struct Rank;
struct Settings;

struct BudgetRequest {
  const Settings& settings;  ///< resolved; its activation plan is ignored
  const ModelFamily& family;
  const Rank& rank;
  const PipelineLayout& layout;
  double budget_bytes = 0;           ///< of each rank
  bool is_bound_by_ulimits = false;  ///< they leave less than the budget that the settings name
  double held_bytes = 0;  ///< what a rank holds besides what is predicted, such as libraries
  OffloadStore* offload_store = nullptr;  ///< null: nothing is offloaded
  /// What a rank may write to the offload folder. If the optimizer's state, weights and all layers
  /// may need more, no layer is offloaded.
  double offload_space_bytes = std::numeric_limits<double>::infinity();
};

struct BudgetPlan {
  std::int64_t micro_batch_size = 1;
  std::vector<LayerPolicy> layers;  ///< of the whole model
  double predicted_bytes = 0;       ///< of the rank that needs most
  std::string table;                ///< the choices and what each costs, for people
};

/// Measures the layers and plans. The micro-batch size is the run's own unless
/// memory.chooses_micro_batch_size. Throws a UserError that says how much memory is needed if
/// nothing fits. Collective over the world; all ranks return the same plan.
BudgetPlan plan_memory_budget(const BudgetRequest& request);

/// Returns why the run does not fit with a plan that was made before, or nothing if it does:
/// "needs 2.10 GiB, and 1.90 GiB is left". A prediction may exceed the budget by the error of
/// predictions (3 %). Collective over the world.
std::string misfit_of_plan(const BudgetRequest& request, std::int64_t micro_batch_size,
                           const std::vector<LayerPolicy>& layers);

}  // namespace megatron
