#include "megatron/config/offload_plan.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "megatron/config/activation_plan.h"
#include "megatron/config/memory_config.h"

namespace megatron {
namespace {

LayerOffload named_modules(const OffloadConfig& config) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(config.offload_modules, name) != config.offload_modules.end();
  };
  return {.attn_norm = has("attn_norm"),
          .qkv_linear = has("qkv_linear"),
          .core_attn = has("core_attn"),
          .attn_proj = has("attn_proj"),
          .mlp_norm = has("mlp_norm"),
          .mlp = has("mlp"),
          .expert_fc1 = has("expert_fc1"),
          .moe_act = has("moe_act")};
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

OffloadPlan offload_plan(const MemoryConfig& memory, const PipelineLayout& layout) {
  const OffloadConfig& config = memory.offload;
  const std::int64_t smallest = std::min(config.min_offloaded_tensor_size, kSmallestOffload);
  if (!memory.activation_plan.empty())
    return offload_plan(parse_activation_plan(memory.activation_plan).value(), smallest);
  const bool by_module = config.fine_grained_activation_offloading;
  if (!by_module && !config.cpu_offloading) return {};
  OffloadPlan plan{.layers = {},
                   .min_elements = by_module ? config.min_offloaded_tensor_size : smallest};
  for (const StageLayers& stage : layout.stages) {
    for (std::int64_t i = 0; i < stage.num_layers; ++i) {
      LayerOffload& layer = plan.layers.emplace_back();
      if (by_module && is_in_share(i, config.activation_offload_fraction))
        layer = named_modules(config);
      if (config.cpu_offloading_activations) layer.whole = offloads_layer(config, i);
    }
  }
  return plan;
}

}  // namespace megatron
