#include "megatron/planner/policy_times.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "megatron/base/progress_bar.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/device_peak.h"

namespace megatron {
namespace {

constexpr int kNumRounds = 2;
constexpr std::int64_t kSmallVocabulary = 1024;
/// The least share of a layer's time that a policy which saves memory is taken to add.
constexpr double kLeastMore = 1e-3;

/// Keeps the shorter times of each part.
void keep_least(LayerTimes& least, const LayerTimes& times) {
  const auto keep = [](StageCost& one, const StageCost& other) {
    if (other.total_s() < one.total_s()) one = other;
  };
  keep(least.embedding, times.embedding);
  keep(least.output, times.output);
  for (const auto& [kind, cost] : times.layers.entries) keep(least.layers[kind], cost);
}

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Moves tensors to a store and back, a few at a time, and returns the bytes per second of each
/// way.
OffloadSpeed measured_speed(OffloadStore& store, c10::Device device) {
  constexpr std::int64_t kBytes = std::int64_t{2} << 20;
  constexpr int kNumTensors = 2, kNumTurns = 12;  // as many tensors as a file has threads
  double write_s = 0, read_s = 0;
  for (int turn = 0; turn < kNumTurns; ++turn) {
    std::vector<at::Tensor> tensors;
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;
    for (int i = 0; i < kNumTensors; ++i) {
      tensors.push_back(at::ones({kBytes}, at::TensorOptions(at::kByte).device(device)));
      memory.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
          tensors.back().storage().unsafeGetStorageImpl()));
    }
    std::vector<std::unique_ptr<OffloadedTensor>> stored;
    write_s += seconds_of([&] {
      for (at::Tensor& tensor : tensors) stored.push_back(store.put(std::exchange(tensor, {})));
      // A file's store drops a tensor when it is written; until then it would be taken back
      // unwritten. A GPU's store drops it at once and copies later.
      for (const auto& tensor : memory)
        while (!tensor.expired()) std::this_thread::sleep_for(std::chrono::microseconds(50));
      synchronize(device);
    });
    read_s += seconds_of([&] {
      for (auto& one : stored) one->prefetch();
      for (auto& one : stored) one->get()[0].item();  // a device has then caught up
    });
  }
  const auto bytes = static_cast<double>(kBytes * kNumTensors * kNumTurns);
  return {.write = bytes / write_s, .read = bytes / read_s};
}

}  // namespace

Policies recomputations(const TransformerConfig& model) {
  using enum LayerNode;
  Policies all{{},
               {.recomputed = {layernorm}},
               {.recomputed = {mlp, moe}},
               {.recomputed = {layernorm, mlp, moe}},
               {.full = true}};
  if (model.moe.shared_expert_intermediate_size > 0)
    all.insert(all.begin() + 2, {.recomputed = {layernorm, shared_experts}});
  if (model.multi_latent_attention)
    all.insert(all.begin() + 2, {.recomputed = {layernorm, mla_up_proj}});
  return all;
}

LayerPolicy for_layer(LayerPolicy policy, const LayerKind& kind) {
  policy.recomputed &= nodes_of(kind);
  return policy;
}

Policies for_every_layer(const TransformerConfig& model, const LayerPolicy& policy) {
  Policies all;
  for (std::int64_t layer = 0; layer < model.num_all_layers(); ++layer)
    all.push_back(for_layer(policy, model.kind(layer)));
  return all;
}

double PolicyTimes::layer_s(const LayerPolicy& policy, const LayerKind& kind,
                            double offloaded_bytes) const {
  LayerPolicy recompute = policy;
  recompute.offload = false;
  std::size_t index = 0;
  while (for_layer(policies.at(index), kind) != recompute) ++index;
  return times[0].layers.of(kind).total_s() + more_s(index, kind) +
         (policy.offload ? offload_s(offloaded_bytes, kind) : 0);
}

/// Returns the time that a policy adds to a layer and a microbatch. A policy that recomputes more
/// takes more time, whatever noise says.
double PolicyTimes::more_s(std::size_t policy, const LayerKind& kind) const {
  const double base = times[0].layers.of(kind).total_s();
  double most = 0;
  for (std::size_t i = 1; i <= policy; ++i)
    most = std::max(most + kLeastMore * base, times[i].layers.of(kind).total_s() - base);
  return most;
}

/// Returns the time by which offloading `bytes` exceeds the computation that hides it.
double PolicyTimes::offload_s(double bytes, const LayerKind& kind) const {
  const StageCost& cost = times[0].layers.of(kind);
  return kLeastMore * cost.total_s() + std::max(0.0, bytes / offload.write - cost.forward_s) +
         std::max(0.0, bytes / offload.read - cost.backward_input_s - cost.backward_weight_s);
}

OffloadSpeed measure_offload(OffloadStore* store, const Rank& rank) {
  OffloadSpeed speed;
  if (store != nullptr) speed = measured_speed(*store, rank.device);
  const std::vector<double> common = broadcast_numbers(
      {rank.world, rank.device}, {speed.write, speed.read}, "speed of the offload store");
  return {.write = common[0], .read = common[1]};
}

PolicyTimes measure_policies(const Settings& settings, const ModelFamily& family, const Rank& rank,
                             const OffloadSpeed& offload) {
  PolicyTimes measured{
      .policies = recomputations(*settings.model), .times = {}, .offload = offload};
  ProgressBarOptions shown{.title = "measuring the layers",
                           .total = 1 + kNumRounds * measured.policies.size()};
  if (rank.world.rank > 0) shown.enabled = false;
  ProgressBar progress(shown);
  const LayerTimes ends = measure_layers(settings, family, rank);
  progress.update(1);
  // A small vocabulary: the ends of the model are measured once. The policies take turns, so that
  // a disturbance of the machine meets all of them.
  Settings layers_only = settings;
  layers_only.model->vocab_size = std::min(layers_only.model->vocab_size, kSmallVocabulary);
  for (int round = 0; round < kNumRounds; ++round) {
    for (std::size_t i = 0; i < measured.policies.size(); ++i) {
      const ActivationPlan plan{.layers = for_every_layer(*settings.model, measured.policies[i])};
      const LayerTimes times = measure_layers(layers_only, family, rank, &plan);
      if (round == 0) measured.times.push_back(times);
      keep_least(measured.times[i], times);
      progress.update(2 + static_cast<std::uint64_t>(round) * measured.policies.size() + i);
    }
  }
  measured.times[0].embedding = ends.embedding;
  measured.times[0].output = ends.output;
  return measured;
}

}  // namespace megatron
