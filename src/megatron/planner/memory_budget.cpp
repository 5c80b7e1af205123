#include "megatron/planner/memory_budget.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/budget_planner.h"
#include "megatron/planner/memory_remedies.h"
#include "megatron/planner/plan_layouts.h"
#include "megatron/planner/policy_times.h"

namespace megatron {
namespace {

constexpr std::int64_t kMostSamples = 64;  ///< the largest micro-batch size that is tried
constexpr double kMebibyte = 1 << 20;

/// Returns the plan that needs least.
const PlanCandidate& least_of(const std::vector<PlanCandidate>& plans) {
  return *std::ranges::min_element(plans, {}, &PlanCandidate::bytes);
}

/// Returns the micro-batch sizes that are tried, ascending.
std::vector<std::int64_t> micro_batch_sizes(const BudgetRequest& request) {
  const TrainingConfig& training = *request.settings.training;
  if (!request.settings.memory->chooses_micro_batch_size) return {training.micro_batch_size};
  const std::int64_t samples = training.global_batch_size / request.rank.dp.size;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= std::min(samples, kMostSamples); size *= 2)
    if (samples % size == 0) sizes.push_back(size);
  return sizes;
}

/// Returns the choices of every layer alike, and what each needs and costs.
std::string choices_text(const BudgetRequest& request, const BudgetPlanner& planner,
                         const PolicyTimes& times, const std::vector<PlanCandidate>& uniform) {
  const std::int64_t last_layer = planner.settings().model->num_layers - 1;
  const double base_s = planner.step_s(uniform.front().layers, times);
  std::string text = format("  %-32s %12s %12s %12s %10s\n", "if all layers recompute",
                            "keep/layer", "peak", "step", "fits");
  for (const PlanCandidate& plan : uniform) {
    const LayerPolicy& policy = plan.layers.back();
    const double seconds = planner.step_s(plan.layers, times);
    const bool fits = plan.bytes <= request.budget_bytes;
    text +=
        format("  %-32s %12s %12s %9.0f ms %10s\n", policy_text(policy).c_str(),
               byte_size_text(policy.offload ? 0 : planner.kept_bytes(last_layer, policy)).c_str(),
               byte_size_text(plan.bytes).c_str(), 1e3 * seconds,
               fits ? format("+%.1f %%", 100 * (seconds / base_s - 1)).c_str() : "no");
  }
  return text;
}

/// Says why nothing is offloaded although there is a folder; empty if something may be.
std::string space_text(const BudgetRequest& request, const BudgetPlanner& planner) {
  if (request.offload_store == nullptr || planner.offloads()) return {};
  const double model = planner.offloaded_model_bytes();
  return "no layer offloads: --offload-folder has " + byte_size_text(request.offload_space_bytes) +
         " free for each rank, and all layers need up to " +
         byte_size_text(planner.most_offloaded_bytes() - model) +
         (model > 0 ? " besides " + byte_size_text(model) + " of optimizer state and weights" : "");
}

/// Returns the flags by which a run with the plan `least` needs less memory, one per line.
std::string remedies_of(const BudgetRequest& request, const BudgetPlanner& planner,
                        const PlanCandidate& least) {
  const std::int64_t ranks = request.rank.world.size;
  std::string folder;
  bool folder_fits = false;
  if (request.offload_store == nullptr && request.rank.device.is_cpu()) {
    const double bytes = least_of(planner.uniform_plans(/*offloads=*/true)).bytes;
    folder_fits = bytes <= request.budget_bytes;
    if (bytes < least.bytes)
      folder =
          "\n    --offload-folder DIR, for activations: " + byte_size_text(least.bytes - bytes) +
          " less" + (folder_fits ? "" : ", which is not enough alone");
  }
  Settings settings = planner.settings();
  settings.memory->memory_budget.clear();
  settings.memory->activation_plan = activation_plan_text(least.layers);
  LayerTraces traces(request.family);
  const double tensors = evaluate_layout(settings, traces, ranks).memory.total();
  const std::string others =
      remedies_text(memory_remedies(settings, request.family, ranks,
                                    tensors + request.budget_bytes - least.bytes),
                    ranks);
  const std::string text = folder_fits ? folder + others : others + folder;
  return text.empty() ? text : ", or, with predicted effects:" + text;
}

/// Returns the budget and where it comes from: "--memory-budget 2.00 GiB for each rank".
std::string budget_text(const BudgetRequest& request) {
  const std::string& flag = request.settings.memory->memory_budget;
  const std::string budget = byte_size_text(request.budget_bytes);
  if (is_automatic_budget(flag))
    return "--memory-budget auto, " + budget + " for each rank by free memory" +
           (request.rank.device.is_cpu() ? " and ulimits" : "");
  if (request.is_bound_by_ulimits)
    return "--memory-budget " + flag + ", of which ulimit -v or -d leaves each rank " + budget;
  return "--memory-budget " + budget + " for each rank";
}

[[noreturn]] void throw_too_small(const BudgetRequest& request, const BudgetPlanner& planner,
                                  const PlanCandidate& least) {
  constexpr double kNoise = 2 * kMebibyte;  // a process holds a little more or less
  const std::string space = space_text(request, planner);
  std::string fix =
      format("set it to %.0fMiB or more", std::ceil((least.bytes + kNoise) / kMebibyte));
  if (request.is_bound_by_ulimits)
    fix = format("raise the ulimit by %.0f MiB",
                 std::ceil((least.bytes + kNoise - request.budget_bytes) / kMebibyte));
  if (is_automatic_budget(request.settings.memory->memory_budget))
    fix = request.rank.device.is_cpu() ? "free memory or raise the limits of the process"
                                       : "free memory of the GPU";
  throw UserError({budget_text(request),
                   "is too small: even with the plan " + activation_plan_text(least.layers) +
                       ", a rank is predicted to need " + byte_size_text(least.bytes) +
                       (space.empty() ? "" : " (" + space + ")"),
                   fix + remedies_of(request, planner, least)});
}

/// Returns what the rank that holds most holds besides what is predicted.
double most_held_bytes(const BudgetRequest& request) {
  double most = 0;
  for (const auto& numbers :
       all_gather_numbers({request.rank.world, request.rank.device},
                          std::vector<double>{request.held_bytes}, "memory held before planning"))
    most = std::max(most, numbers.front());
  return most;
}

}  // namespace

BudgetPlan plan_memory_budget(const BudgetRequest& request) {
  const double held_bytes = most_held_bytes(request);
  std::optional<OffloadSpeed> speed;
  std::optional<PlanCandidate> best;
  std::string table;
  for (const std::int64_t size : micro_batch_sizes(request)) {
    Settings settings = request.settings;
    settings.training->micro_batch_size = size;
    const BudgetPlanner planner(request, std::move(settings), held_bytes);
    const std::vector<PlanCandidate> uniform = planner.uniform_plans(planner.offloads());
    const PlanCandidate& least = least_of(uniform);
    if (least.bytes > request.budget_bytes) {
      if (!best) throw_too_small(request, planner, least);
      break;  // neither do larger ones fit, nor may measuring them exceed the budget
    }
    if (!speed && planner.offloads()) speed = measure_offload(request.offload_store, request.rank);
    const PolicyTimes times = measure_policies(planner.settings(), request.family, request.rank,
                                               speed.value_or(OffloadSpeed{}));
    const PlanCandidate found = planner.plan(times, uniform);
    if (best && found.step_s >= best->step_s) continue;
    best = found;
    const std::string space = space_text(request, planner);
    table = format("memory budget of a rank: %s; micro-batch %ld, %ld microbatches\n",
                   byte_size_text(request.budget_bytes).c_str(), static_cast<long>(size),
                   static_cast<long>(planner.num_microbatches())) +
            choices_text(request, planner, times, uniform) +
            (space.empty() ? "" : "  " + space + "\n") +
            format("  chosen: %s: predicted peak %s, step %.0f ms",
                   activation_plan_text(found.layers).c_str(), byte_size_text(found.bytes).c_str(),
                   1e3 * found.step_s);
  }
  return {.micro_batch_size = best->micro_batch_size,
          .layers = std::move(best->layers),
          .predicted_bytes = best->bytes,
          .table = std::move(table)};
}

std::string misfit_of_plan(const BudgetRequest& request, std::int64_t micro_batch_size,
                           const Policies& layers) {
  constexpr double kTolerance = 1.03;
  Settings settings = request.settings;
  settings.training->micro_batch_size = micro_batch_size;
  const BudgetPlanner planner(request, std::move(settings), most_held_bytes(request));
  if (std::ranges::any_of(layers, &LayerPolicy::offload) && !planner.offloads())
    return "offloads layers, and " + space_text(request, planner);
  const double bytes = planner.candidate(layers).bytes;
  if (bytes <= kTolerance * request.budget_bytes) return {};
  return "needs " + byte_size_text(bytes) + ", and " + byte_size_text(request.budget_bytes) +
         " is left for each rank";
}

}  // namespace megatron
