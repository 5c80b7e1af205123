#include "megatron/planner/memory_budget.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/config/byte_count.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/planner/activation_memory.h"
#include "megatron/planner/choose_activations.h"
#include "megatron/planner/memory_remedies.h"
#include "megatron/planner/plan_layouts.h"
#include "megatron/planner/policy_times.h"
#include "megatron/planner/predict_memory_table.h"

namespace megatron {
namespace {

constexpr std::int64_t kMostSamples = 64;  ///< the largest micro-batch size that is tried
constexpr int kMostCorrections = 8;
constexpr double kMebibyte = 1 << 20;

/// A plan and what it is predicted to need and to take.
struct Candidate {
  std::int64_t micro_batch_size = 1;
  Policies layers;
  double bytes = 0, step_s = 0;
};

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

/// Plans at one micro-batch size.
class Planner {
 public:
  /// `held_bytes` is what the rank that holds most holds besides what is predicted.
  Planner(const BudgetRequest& request, Settings settings, double held_bytes)
      : request_(request), settings_(std::move(settings)), held_bytes_(held_bytes) {
    settings_.memory.activation_plan.clear();
    num_microbatches_ = first_num_microbatches(settings_, request_.rank.world.size);
    if (request_.offload_store == nullptr) return;
    Settings all = settings_;
    all.memory.activation_plan =
        activation_plan_text(for_every_layer(settings_.model, {.offload = true}));
    for (const Rank& rank : pipeline_ranks(settings_, request_.rank.world.size)) {
      const RankMemory memory =
          predict_rank_memory(all, request_.family, rank, request_.layout, num_microbatches_);
      const StepShape shape = step_shape(all, rank, request_.layout, num_microbatches_);
      const double model = memory.offloaded_state + memory.offloaded_weights,
                   both = model + shape.microbatches_in_flight * memory.offloaded_activations;
      if (both <= most_offloaded_bytes_) continue;
      offloaded_model_bytes_ = model;
      most_offloaded_bytes_ = both;
    }
  }

  /// Returns whether layers may offload: the space suffices even if all of them do.
  bool offloads() const {
    return request_.offload_store != nullptr &&
           most_offloaded_bytes_ <= request_.offload_space_bytes;
  }
  /// Returns what a rank offloads at most, and the part of the optimizer's state and of weights.
  double most_offloaded_bytes() const { return most_offloaded_bytes_; }
  double offloaded_model_bytes() const { return offloaded_model_bytes_; }

  /// Returns a plan with the predicted bytes of the rank that needs most.
  Candidate candidate(Policies layers) const {
    double bytes = 0;
    for (const Rank& rank : pipeline_ranks(settings_, request_.rank.world.size))
      bytes = std::max(bytes, predict(rank, layers).peak);
    return {.micro_batch_size = settings_.training.micro_batch_size,
            .layers = std::move(layers),
            .bytes = bytes};
  }

  /// Returns the plans with the same policy for every layer; their times are unknown.
  std::vector<Candidate> uniform_plans(bool offloads) const {
    std::vector<Candidate> plans;
    for (const LayerActivationPolicy& policy : all_policies(settings_.model, offloads))
      plans.push_back(candidate(for_every_layer(settings_.model, policy)));
    return plans;
  }

  /// Returns the plan of the least time within the budget: the search's or one of `uniform`, of
  /// which one at least must be within it.
  Candidate plan(const PolicyTimes& times, const std::vector<Candidate>& uniform) const {
    std::optional<Candidate> best;
    const auto offer = [&](Candidate offered) {
      offered.step_s = step_s(offered.layers, times);
      if (offered.bytes <= request_.budget_bytes && (!best || offered.step_s < best->step_s))
        best = std::move(offered);
    };
    for (const Candidate& one : uniform) offer(one);
    Policies layers = for_every_layer(settings_.model, {});
    const std::vector<Rank> ranks = pipeline_ranks(settings_, request_.rank.world.size);
    if (std::ranges::all_of(ranks,
                            [&](const Rank& rank) { return plan_rank(rank, times, layers); }))
      offer(candidate(std::move(layers)));
    MEGATRON_CHECK(best.has_value(), "a budget is planned that no plan fits");
    return *std::move(best);
  }

  /// Returns the time of a step on the slowest rank, without the pipeline's bubble.
  double step_s(const Policies& layers, const PolicyTimes& times) const {
    double slowest = 0;
    for (std::int64_t rank = 0; rank < request_.layout.num_ranks; ++rank) {
      double seconds = 0;
      for (const std::int64_t layer : layers_of(request_.layout, rank))
        seconds += layer_s(layer, layers[static_cast<std::size_t>(layer)], times);
      for (std::int64_t chunk = 0; chunk < request_.layout.num_chunks; ++chunk) {
        const StageLayers& stage = request_.layout.of(rank, chunk);
        if (stage.has_embedding) seconds += times.times[0].embedding.total_s();
        if (stage.has_output) seconds += times.times[0].output.total_s();
      }
      slowest = std::max(slowest, seconds);
    }
    return slowest * static_cast<double>(num_microbatches_);
  }

  std::int64_t num_microbatches() const { return num_microbatches_; }
  const Settings& settings() const { return settings_; }

  /// Returns what a layer keeps of one microbatch with a policy, offloaded or not.
  double kept_bytes(std::int64_t layer, const LayerActivationPolicy& policy) const {
    const ActivationLayout layout = activation_layout(settings_, request_.rank);
    return stage_activations(settings_.model, {layer},
                             recompute_plan(for_every_layer(settings_.model, policy)), layout)
        .total_kept();
  }

 private:
  /// The choices of the layers of one kind, and the policy of each.
  struct KindChoices {
    std::vector<ActivationChoice> choices;
    Policies policies;
  };

  /// Returns the predicted memory of a rank of the pipeline with a plan for all layers.
  MemoryTable predict(const Rank& rank, const Policies& layers) const {
    Settings planned = settings_;
    planned.memory.activation_plan = activation_plan_text(layers);
    return predict_memory_table(planned, request_.family, rank, request_.layout, num_microbatches_,
                                {.libraries = held_bytes_});
  }

  double layer_s(std::int64_t layer, const LayerActivationPolicy& policy,
                 const PolicyTimes& times) const {
    LayerActivationPolicy recompute = policy;
    recompute.offload = false;
    return times.layer_s(policy, settings_.model.moe.has_experts(layer),
                         policy.offload ? kept_bytes(layer, recompute) : 0);
  }

  /// Returns the choices of layers like `layer`.
  KindChoices choices(std::int64_t layer, double in_flight, const PolicyTimes& times) const {
    KindChoices kind;
    const bool has_experts = settings_.model.moe.has_experts(layer);
    const double whole = kept_bytes(layer, {}), base = layer_s(layer, {}, times);
    const auto integer = [](double value) { return static_cast<std::int64_t>(std::ceil(value)); };
    for (const LayerActivationPolicy& any : all_policies(settings_.model, offloads())) {
      const LayerActivationPolicy policy = for_layer(any, has_experts);
      if (std::ranges::count(kind.policies, policy) > 0) continue;
      LayerActivationPolicy recompute = policy;
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

  /// Chooses for the layers of one rank of the pipeline. Predictions decide whether a choice fits;
  /// the search sees what exceeds the budget as less memory for activations.
  bool plan_rank(const Rank& rank, const PolicyTimes& times, Policies& layers) const {
    const std::vector<std::int64_t> own = layers_of(request_.layout, rank.pp.rank);
    const StepShape shape = step_shape(settings_, rank, request_.layout, num_microbatches_);
    std::vector<std::vector<ActivationChoice>> choices_of_kind(2);
    std::vector<Policies> policies(2);
    std::vector<std::size_t> kinds;
    std::int64_t kept = 0;
    for (const std::int64_t layer : own) {
      const std::size_t kind = settings_.model.moe.has_experts(layer) ? 1 : 0;
      if (policies[kind].empty()) {
        KindChoices made = choices(layer, shape.microbatches_in_flight, times);
        choices_of_kind[kind] = std::move(made.choices);
        policies[kind] = std::move(made.policies);
      }
      kinds.push_back(kind);
      kept += choices_of_kind[kind].front().kept_bytes;
    }
    // Predictions differ from the sums that the search knows, so the memory that it may use is
    // corrected by the difference, down and up, until a plan comes again.
    double available =
        request_.budget_bytes - predict(rank, layers).peak + static_cast<double>(kept);
    std::optional<Policies> best;
    std::int64_t best_ns = 0;
    std::set<std::vector<std::size_t>> seen;
    for (int correction = 0; correction < kMostCorrections; ++correction) {
      const auto chosen =
          choose_activations(kinds, choices_of_kind, static_cast<std::int64_t>(available));
      if (!chosen || !seen.insert(chosen->choices).second) break;
      for (std::size_t i = 0; i < own.size(); ++i)
        layers[static_cast<std::size_t>(own[i])] = policies[kinds[i]][chosen->choices[i]];
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

  const BudgetRequest& request_;
  Settings settings_;
  double held_bytes_, most_offloaded_bytes_ = 0, offloaded_model_bytes_ = 0;
  std::int64_t num_microbatches_ = 1;
};

/// Returns the plan that needs least.
const Candidate& least_of(const std::vector<Candidate>& plans) {
  return *std::ranges::min_element(plans, {}, &Candidate::bytes);
}

/// Returns the micro-batch sizes that are tried, ascending.
std::vector<std::int64_t> micro_batch_sizes(const BudgetRequest& request) {
  const TrainingConfig& training = request.settings.training;
  if (!request.settings.memory.chooses_micro_batch_size) return {training.micro_batch_size};
  const std::int64_t samples = training.global_batch_size / request.rank.dp.size;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= std::min(samples, kMostSamples); size *= 2)
    if (samples % size == 0) sizes.push_back(size);
  return sizes;
}

/// Returns the choices of every layer alike, and what each needs and costs.
std::string choices_text(const BudgetRequest& request, const Planner& planner,
                         const PolicyTimes& times, const std::vector<Candidate>& uniform) {
  const std::int64_t last_layer = planner.settings().model.num_layers - 1;
  const double base_s = planner.step_s(uniform.front().layers, times);
  std::string text = format("  %-32s %12s %12s %12s %10s\n", "if all layers recompute",
                            "keep/layer", "peak", "step", "fits");
  for (const Candidate& plan : uniform) {
    const LayerActivationPolicy& policy = plan.layers.back();
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
std::string space_text(const BudgetRequest& request, const Planner& planner) {
  if (request.offload_store == nullptr || planner.offloads()) return {};
  const double model = planner.offloaded_model_bytes();
  return "no layer offloads: --offload-folder has " + byte_size_text(request.offload_space_bytes) +
         " free for each rank, and all layers need up to " +
         byte_size_text(planner.most_offloaded_bytes() - model) +
         (model > 0 ? " beside " + byte_size_text(model) + " of optimizer state and weights" : "");
}

/// Returns the flags by which a run with the plan `least` needs less memory, one per line.
std::string remedies_of(const BudgetRequest& request, const Planner& planner,
                        const Candidate& least) {
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
  settings.memory.memory_budget.clear();
  settings.memory.activation_plan = activation_plan_text(least.layers);
  const double tensors = evaluate_layout(settings, request.family, ranks).memory.total();
  const std::string others =
      remedies_text(memory_remedies(settings, request.family, ranks,
                                    tensors + request.budget_bytes - least.bytes),
                    ranks);
  const std::string text = folder_fits ? folder + others : others + folder;
  return text.empty() ? text : ", or, with predicted effects:" + text;
}

/// Returns the budget and where it comes from: "--memory-budget 2.00 GiB for each rank".
std::string budget_text(const BudgetRequest& request) {
  const std::string& flag = request.settings.memory.memory_budget;
  const std::string budget = byte_size_text(request.budget_bytes);
  if (is_automatic_budget(flag))
    return "--memory-budget auto, " + budget + " for each rank by free memory" +
           (request.rank.device.is_cpu() ? " and ulimits" : "");
  if (request.is_bound_by_ulimits)
    return "--memory-budget " + flag + ", of which ulimit -v or -d leaves each rank " + budget;
  return "--memory-budget " + budget + " for each rank";
}

[[noreturn]] void throw_too_small(const BudgetRequest& request, const Planner& planner,
                                  const Candidate& least) {
  constexpr double kNoise = 2 * kMebibyte;  // a process holds a little more or less
  const std::string space = space_text(request, planner);
  std::string fix =
      format("set it to %.0fMiB or more", std::ceil((least.bytes + kNoise) / kMebibyte));
  if (request.is_bound_by_ulimits)
    fix = format("raise the ulimit by %.0f MiB",
                 std::ceil((least.bytes + kNoise - request.budget_bytes) / kMebibyte));
  if (is_automatic_budget(request.settings.memory.memory_budget))
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
  std::optional<Candidate> best;
  std::string table;
  for (const std::int64_t size : micro_batch_sizes(request)) {
    Settings settings = request.settings;
    settings.training.micro_batch_size = size;
    const Planner planner(request, std::move(settings), held_bytes);
    const std::vector<Candidate> uniform = planner.uniform_plans(planner.offloads());
    const Candidate& least = least_of(uniform);
    if (least.bytes > request.budget_bytes) {
      if (!best) throw_too_small(request, planner, least);
      break;  // neither do larger ones fit, nor may measuring them exceed the budget
    }
    if (!speed && planner.offloads()) speed = measure_offload(request.offload_store, request.rank);
    const PolicyTimes times = measure_policies(planner.settings(), request.family, request.rank,
                                               speed.value_or(OffloadSpeed{}));
    const Candidate found = planner.plan(times, uniform);
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
  settings.training.micro_batch_size = micro_batch_size;
  const Planner planner(request, std::move(settings), most_held_bytes(request));
  if (std::ranges::any_of(layers, &LayerActivationPolicy::offload) && !planner.offloads())
    return "offloads layers, and " + space_text(request, planner);
  const double bytes = planner.candidate(layers).bytes;
  if (bytes <= kTolerance * request.budget_bytes) return {};
  return "needs " + byte_size_text(bytes) + ", and " + byte_size_text(request.budget_bytes) +
         " is left for each rank";
}

}  // namespace megatron
