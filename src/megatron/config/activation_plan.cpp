#include "megatron/config/activation_plan.h"

#include <algorithm>
#include <cmath>

#include "megatron/config/list_expression.h"
#include "megatron/config/memory_config.h"

namespace megatron {
namespace {

/// Smaller tensors stay resident: moving them costs more than it saves.
constexpr std::int64_t kSmallestOffload = 16 * 1024;

/// Returns what the `index`-th layer of a stage recomputes.
LayerPolicy recomputing(const RecomputeConfig& config, std::int64_t index) {
  if (config.recompute_granularity == "selective")
    return {.recomputed = named_nodes(config.recompute_modules, kRecomputed)};
  const std::int64_t count = config.recompute_num_layers.value_or(1);
  if (config.recompute_method == "block") return {.full = index < count};
  return {.full = true, .joins_previous = index % count != 0};
}

/// Returns whether item `index` is among an evenly spread share of all items.
bool is_in_share(std::int64_t index, double share) {
  const auto count_before = [&](std::int64_t i) {
    return std::floor(static_cast<double>(i) * share);
  };
  return count_before(index + 1) > count_before(index);
}

/// Returns whether --cpu-offloading moves what the `index`-th layer of a stage has.
bool offloads_layer(const OffloadConfig& config, std::int64_t index) {
  return config.cpu_offloading &&
         (config.cpu_offloading_num_layers == 0 || index < config.cpu_offloading_num_layers);
}

}  // namespace

ActivationPlan activation_plan(const MemoryConfig& memory, const PipelineLayout& layout) {
  const OffloadConfig& offload = memory.offload;
  const RecomputeConfig& recompute = memory.recompute;
  const std::int64_t least = offload.min_offloaded_tensor_size;
  if (!memory.activation_plan.empty())
    return {.layers = parse_activation_plan(memory.activation_plan).value(),
            .min_offloaded_elements = std::min(least, kSmallestOffload)};
  const bool by_node = offload.fine_grained_activation_offloading;
  ActivationPlan plan{
      .layers = {},
      .distributes_saved_activations = recompute.distribute_saved_activations,
      .min_offloaded_elements = by_node ? least : std::min(least, kSmallestOffload)};
  const bool recomputes =
      recompute.recompute_granularity == "full" || recompute.recompute_granularity == "selective";
  const auto mask = list_expression(recompute.recompute_layers);
  for (const StageLayers& stage : layout.stages) {
    for (std::int64_t i = 0; i < stage.num_layers; ++i) {
      LayerPolicy policy;
      // Layers of multi-token prediction, which the mask does not name, do as the last one.
      if (recomputes && (!mask || mask->at(std::min(plan.layers.size(), mask->size() - 1)) != 0))
        policy = recomputing(recompute, i);
      if (by_node && is_in_share(i, offload.activation_offload_fraction))
        policy.offloaded = named_nodes(offload.offload_modules, kOffloaded);
      policy.offload = offload.cpu_offloading_activations && offloads_layer(offload, i);
      plan.layers.push_back(policy);
    }
  }
  return plan;
}

bool is_planned(const MemoryConfig& memory) {
  return memory.has_budget() || !memory.activation_plan.empty();
}

bool offloads_layers(const MemoryConfig& memory) {
  const OffloadConfig& config = memory.offload;
  return config.cpu_offloading || config.cpu_offloading_num_layers > 0 ||
         config.fine_grained_activation_offloading ||
         memory.activation_plan.find("offload") != std::string::npos;
}

std::vector<bool> layers_with_offloaded_weights(const OffloadConfig& config,
                                                const PipelineLayout& layout,
                                                std::int64_t pipeline_rank) {
  std::vector<bool> layers;
  for (std::int64_t chunk = 0; chunk < layout.num_chunks; ++chunk) {
    for (std::int64_t i = 0; i < layout.of(pipeline_rank, chunk).num_layers; ++i)
      layers.push_back(config.cpu_offloading_weights && offloads_layer(config, i));
  }
  return layers;
}

}  // namespace megatron
