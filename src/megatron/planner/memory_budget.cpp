#include "megatron/planner/memory_budget.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/progress_bar.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/planner/activation_memory.h"
#include "megatron/planner/choose_activations.h"
#include "megatron/planner/measure_layers.h"
#include "megatron/planner/memory_remedies.h"
#include "megatron/planner/plan_layouts.h"
#include "megatron/planner/predict_memory_table.h"

namespace megatron {
namespace {

constexpr std::int64_t kMostSamples = 64;  ///< the largest micro-batch size that is tried
constexpr int kMostCorrections = 8, kNumRounds = 2;
constexpr std::int64_t kSmallVocabulary = 1024;

using Policies = std::vector<LayerActivationPolicy>;

/// What a layer with and without experts may recompute, beginning with nothing.
Policies recomputations(const TransformerConfig& model) {
  Policies all{{},
               {.layernorm = true},
               {.mlp = true, .moe = true},
               {.layernorm = true, .mlp = true, .moe = true},
               {.full = true}};
  if (model.moe.shared_expert_intermediate_size > 0)
    all.insert(all.begin() + 2, {.layernorm = true, .shared_experts = true});
  return all;
}

/// Returns the policy without the parts that a layer lacks.
LayerActivationPolicy for_layer(LayerActivationPolicy policy, bool has_experts) {
  if (has_experts) {
    policy.mlp = false;
  } else {
    policy.moe = policy.shared_experts = false;
  }
  return policy;
}

Policies every_layer(const TransformerConfig& model, const LayerActivationPolicy& policy) {
  Policies all;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    all.push_back(for_layer(policy, model.moe.has_experts(layer)));
  return all;
}

/// Keeps the shorter times of each part.
void keep_least(LayerTimes& least, const LayerTimes& times) {
  for (StageCost LayerTimes::*part : {&LayerTimes::embedding, &LayerTimes::output,
                                      &LayerTimes::dense_layer, &LayerTimes::moe_layer})
    if ((times.*part).total_s() < (least.*part).total_s()) least.*part = times.*part;
}

/// Bytes per second of an offload store; 0 without one.
struct OffloadSpeed {
  double write = 0, read = 0;
};

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

OffloadSpeed measure_offload(OffloadStore* store, c10::Device device) {
  if (store == nullptr) return {};
  constexpr std::int64_t kBytes = std::int64_t{8} << 20, kTensors = 8;
  std::vector<std::unique_ptr<OffloadedTensor>> stored;
  std::vector<at::Tensor> tensors;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;
  for (std::int64_t i = 0; i < kTensors; ++i) {
    tensors.push_back(at::ones({kBytes}, at::TensorOptions(at::kByte).device(device)));
    memory.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        tensors.back().storage().unsafeGetStorageImpl()));
  }
  const double write_s = seconds_of([&] {
    for (at::Tensor& tensor : tensors) stored.push_back(store->put(std::exchange(tensor, {})));
    // A store drops a tensor when it is written; until then it would be taken back unwritten.
    for (const auto& tensor : memory)
      while (!tensor.expired()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
  const double read_s = seconds_of([&] {
    for (auto& one : stored) one->prefetch();
    for (auto& one : stored) one->get()[0].item();  // a device has then caught up
  });
  const auto bytes = static_cast<double>(kBytes * kTensors);
  return {.write = bytes / write_s, .read = bytes / read_s};
}

/// Measured times at one micro-batch size.
struct Measured {
  Policies policies;              ///< recomputations()
  std::vector<LayerTimes> times;  ///< one per policy
  OffloadSpeed offload;
  double held_bytes = 0;

  const StageCost& layer(std::size_t policy, bool has_experts) const {
    return has_experts ? times[policy].moe_layer : times[policy].dense_layer;
  }
  /// Returns the time that a policy adds to a layer and a microbatch. A policy that recomputes more
  /// takes more time, whatever noise says: at least a thousandth of the layer's.
  double more_s(std::size_t policy, bool has_experts) const {
    const double base = layer(0, has_experts).total_s();
    double most = 0;
    for (std::size_t i = 1; i <= policy; ++i)
      most = std::max(most + 1e-3 * base, layer(i, has_experts).total_s() - base);
    return most;
  }
  /// Returns the time by which offloading `bytes` exceeds the computation that hides it.
  double offload_s(double bytes, bool has_experts) const {
    const StageCost& cost = layer(0, has_experts);
    return 1e-3 * cost.total_s() + std::max(0.0, bytes / offload.write - cost.forward_s) +
           std::max(0.0, bytes / offload.read - cost.backward_input_s - cost.backward_weight_s);
  }
};

/// A plan and what it is predicted to need and to take.
struct Candidate {
  std::int64_t micro_batch_size = 1;
  Policies layers;
  double bytes = 0, step_s = 0;
};

class Planner {
 public:
  Planner(const BudgetRequest& request, Settings settings)
      : request_(request), settings_(std::move(settings)) {
    settings_.memory.activation_plan.clear();
    num_microbatches_ = first_num_microbatches(settings_, request_.rank.world.size);
  }

  Measured measure() const {
    Measured measured{.policies = recomputations(settings_.model)};
    ProgressBarOptions shown{.title = "measuring the layers",
                             .total = 1 + kNumRounds * measured.policies.size()};
    if (request_.rank.world.rank > 0) shown.enabled = false;
    ProgressBar progress(shown);
    const LayerTimes ends = measure_layers(settings_, request_.family, request_.rank);
    progress.update(1);
    // A small vocabulary: the ends of the model are measured once. The policies take turns, so that
    // a disturbance of the machine meets all of them.
    Settings layers_only = settings_;
    layers_only.model.vocab_size = std::min(layers_only.model.vocab_size, kSmallVocabulary);
    for (int round = 0; round < kNumRounds; ++round) {
      for (std::size_t i = 0; i < measured.policies.size(); ++i) {
        const RecomputePlan recompute =
            recompute_plan(every_layer(settings_.model, measured.policies[i]));
        const LayerTimes times =
            measure_layers(layers_only, request_.family, request_.rank, &recompute);
        if (round == 0) measured.times.push_back(times);
        keep_least(measured.times[i], times);
        progress.update(2 + static_cast<std::uint64_t>(round) * measured.policies.size() + i);
      }
    }
    measured.times[0].embedding = ends.embedding;
    measured.times[0].output = ends.output;
    const OffloadSpeed speed = measure_offload(request_.offload_store, request_.rank.device);
    const std::vector<double> numbers =
        broadcast_numbers({request_.rank.world, request_.rank.device},
                          {speed.write, speed.read, request_.held_bytes}, "measured offload");
    measured.offload = {numbers[0], numbers[1]};
    measured.held_bytes = numbers[2];
    return measured;
  }

  /// Returns the predicted bytes of a rank of the pipeline with a plan for all layers.
  double predict(const Rank& rank, const Policies& layers, double held_bytes) const {
    Settings planned = settings_;
    planned.memory.activation_plan = activation_plan_text(layers);
    return predict_memory_table(planned, request_.family, rank, request_.layout, num_microbatches_,
                                {.libraries = held_bytes})
        .peak;
  }

  double largest(const Policies& layers, double held_bytes) const {
    double most = 0;
    for (const Rank& rank : pipeline_ranks(settings_, request_.rank.world.size))
      most = std::max(most, predict(rank, layers, held_bytes));
    return most;
  }

  /// Returns the time of a step on the slowest rank, without the pipeline's bubble.
  double step_s(const Policies& layers, const Measured& measured) const {
    double slowest = 0;
    for (std::int64_t rank = 0; rank < request_.layout.num_ranks; ++rank) {
      double seconds = 0;
      for (const std::int64_t layer : layers_of(request_.layout, rank))
        seconds += layer_s(layer, layers[static_cast<std::size_t>(layer)], measured);
      for (std::int64_t chunk = 0; chunk < request_.layout.num_chunks; ++chunk) {
        const StageLayers& stage = request_.layout.of(rank, chunk);
        if (stage.has_embedding) seconds += measured.times[0].embedding.total_s();
        if (stage.has_output) seconds += measured.times[0].output.total_s();
      }
      slowest = std::max(slowest, seconds);
    }
    return slowest * static_cast<double>(num_microbatches_);
  }

  /// Returns the plan of the least time within the budget, or nullopt.
  std::optional<Candidate> plan(const Measured& measured) const {
    Candidate candidate{.micro_batch_size = settings_.training.micro_batch_size,
                        .layers = every_layer(settings_.model, {})};
    for (const Rank& rank : pipeline_ranks(settings_, request_.rank.world.size))
      if (!plan_rank(rank, measured, candidate.layers)) return std::nullopt;
    candidate.bytes = largest(candidate.layers, measured.held_bytes);
    candidate.step_s = step_s(candidate.layers, measured);
    return candidate;
  }

  std::int64_t num_microbatches() const { return num_microbatches_; }
  const Settings& settings() const { return settings_; }

  /// Returns what a layer keeps of one microbatch with a policy, offloaded or not.
  double kept_bytes(std::int64_t layer, const LayerActivationPolicy& policy) const {
    const ActivationLayout layout = activation_layout(settings_, request_.rank);
    return stage_activations(settings_.model, {layer},
                             recompute_plan(every_layer(settings_.model, policy)), layout)
        .total_kept();
  }

  double layer_s(std::int64_t layer, const LayerActivationPolicy& policy,
                 const Measured& measured) const {
    const bool has_experts = settings_.model.moe.has_experts(layer);
    LayerActivationPolicy recompute = policy;
    recompute.offload = false;
    std::size_t index = 0;
    while (for_layer(measured.policies[index], has_experts) != recompute) ++index;
    const double offload =
        policy.offload ? measured.offload_s(kept_bytes(layer, recompute), has_experts) : 0;
    return measured.layer(0, has_experts).total_s() + measured.more_s(index, has_experts) + offload;
  }

 private:
  /// Returns the choices of layers like `layer`, and the policy of each.
  std::pair<std::vector<ActivationChoice>, Policies> choices(std::int64_t layer, double in_flight,
                                                             const Measured& measured) const {
    std::vector<ActivationChoice> choices;
    Policies policies;
    const bool has_experts = settings_.model.moe.has_experts(layer);
    const double whole = kept_bytes(layer, {}), base = layer_s(layer, {}, measured);
    const auto integer = [](double value) { return static_cast<std::int64_t>(std::ceil(value)); };
    for (const bool offload : {false, true}) {
      if (offload && request_.offload_store == nullptr) continue;
      for (const LayerActivationPolicy& measured_policy : measured.policies) {
        LayerActivationPolicy policy = for_layer(measured_policy, has_experts);
        if (std::ranges::count(policies, policy) > 0) continue;
        const double kept = kept_bytes(layer, policy);
        policy.offload = offload;
        const double more_s = layer_s(layer, policy, measured) - base;
        choices.push_back(
            {.kept_bytes = offload ? 0 : integer(in_flight * kept),
             .backward_bytes = integer(offload ? whole + kept : whole - kept),
             .more_ns = integer(1e9 * more_s * static_cast<double>(num_microbatches_))});
        policies.push_back(policy);
      }
    }
    return {choices, policies};
  }

  /// Chooses for the layers of one rank of the pipeline. Predictions decide whether a choice fits;
  /// the search sees what exceeds the budget as less memory for activations.
  bool plan_rank(const Rank& rank, const Measured& measured, Policies& layers) const {
    const std::vector<std::int64_t> own = layers_of(request_.layout, rank.pp.rank);
    const StepShape shape = step_shape(settings_, rank, request_.layout, num_microbatches_);
    std::vector<std::vector<ActivationChoice>> choices_of_kind(2);
    std::vector<Policies> policies(2);
    std::vector<std::size_t> kinds;
    std::int64_t kept = 0;
    for (const std::int64_t layer : own) {
      const std::size_t kind = settings_.model.moe.has_experts(layer) ? 1 : 0;
      if (policies[kind].empty())
        std::tie(choices_of_kind[kind], policies[kind]) =
            choices(layer, shape.microbatches_in_flight, measured);
      kinds.push_back(kind);
      kept += choices_of_kind[kind].front().kept_bytes;
    }
    double available = request_.budget_bytes - predict(rank, layers, measured.held_bytes) +
                       static_cast<double>(kept);
    for (int correction = 0; correction < kMostCorrections; ++correction) {
      const auto chosen =
          choose_activations(kinds, choices_of_kind, static_cast<std::int64_t>(available));
      if (!chosen) return false;
      for (std::size_t i = 0; i < own.size(); ++i)
        layers[static_cast<std::size_t>(own[i])] = policies[kinds[i]][chosen->choices[i]];
      const double excess = predict(rank, layers, measured.held_bytes) - request_.budget_bytes;
      if (excess <= 0) return true;
      available = std::min(available, static_cast<double>(chosen->bytes)) - std::max(excess, 1.0);
    }
    return false;
  }

  const BudgetRequest& request_;
  Settings settings_;
  std::int64_t num_microbatches_ = 1;
};

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
                         const Measured& measured) {
  const TransformerConfig& model = planner.settings().model;
  const Policies none = every_layer(model, {});
  const double base_s = planner.step_s(none, measured);
  std::string text = format("  %-32s %12s %12s %12s %10s\n", "if all layers recompute",
                            "keep/layer", "peak", "step", "fits");
  for (const bool offload : {false, true}) {
    if (offload && request.offload_store == nullptr) continue;
    for (LayerActivationPolicy policy : measured.policies) {
      policy.offload = offload;
      const Policies layers = every_layer(model, policy);
      const double bytes = planner.largest(layers, measured.held_bytes),
                   seconds = planner.step_s(layers, measured);
      text += format(
          "  %-32s %12s %12s %9.0f ms %10s\n", policy_text(layers.back()).c_str(),
          byte_size_text(offload ? 0 : planner.kept_bytes(model.num_layers - 1, layers.back()))
              .c_str(),
          byte_size_text(bytes).c_str(), 1e3 * seconds,
          bytes <= request.budget_bytes ? format("+%.1f %%", 100 * (seconds / base_s - 1)).c_str()
                                        : "no");
    }
  }
  return text;
}

[[noreturn]] void throw_too_small(const BudgetRequest& request, double least) {
  throw UserError(
      {"--memory-budget " + byte_size_text(request.budget_bytes) + " of each rank",
       "is too small: with all that can be recomputed" +
           std::string(request.offload_store != nullptr ? " and offloaded" : "") +
           ", a rank is predicted to need " + byte_size_text(least),
       request.offload_store != nullptr
           ? "raise it, use --zero-stage 3 or --optimizer-cpu-offload, or more ranks"
           : "raise it, add --offload-folder DIR, use --zero-stage 3 or --optimizer-cpu-offload, "
             "or more ranks"});
}

}  // namespace

BudgetPlan plan_memory_budget(const BudgetRequest& request) {
  std::optional<Candidate> best;
  std::string table;
  double least = 0;
  const std::vector<std::int64_t> sizes = micro_batch_sizes(request);
  for (const std::int64_t size : sizes) {
    Settings settings = request.settings;
    settings.training.micro_batch_size = size;
    const Planner planner(request, std::move(settings));
    const Measured measured = planner.measure();
    const std::optional<Candidate> found = planner.plan(measured);
    if (!found) {
      if (size == sizes.front())
        least = planner.largest(
            every_layer(request.settings.model,
                        {.full = true, .offload = request.offload_store != nullptr}),
            measured.held_bytes);
      break;  // larger ones need more
    }
    if (best && found->step_s >= best->step_s) continue;
    best = found;
    table = format("memory budget of a rank: %s; micro-batch %ld, %ld microbatches\n",
                   byte_size_text(request.budget_bytes).c_str(), static_cast<long>(size),
                   static_cast<long>(planner.num_microbatches())) +
            choices_text(request, planner, measured) +
            format("  chosen: %s: predicted peak %s, step %.0f ms",
                   activation_plan_text(found->layers).c_str(),
                   byte_size_text(found->bytes).c_str(), 1e3 * found->step_s);
  }
  if (!best) throw_too_small(request, least);
  return {.micro_batch_size = best->micro_batch_size,
          .layers = std::move(best->layers),
          .predicted_bytes = best->bytes,
          .table = std::move(table)};
}

}  // namespace megatron
