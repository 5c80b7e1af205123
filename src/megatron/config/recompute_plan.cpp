#include "megatron/config/recompute_plan.h"

#include <algorithm>
#include <string_view>

#include "megatron/config/activation_plan.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/memory_config.h"

namespace megatron {
namespace {

bool has_module(const RecomputeConfig& config, std::string_view name) {
  return std::ranges::find(config.recompute_modules, name) != config.recompute_modules.end();
}

std::int64_t num_layers(const PipelineLayout& layout) {
  std::int64_t sum = 0;
  for (const StageLayers& stage : layout.stages) sum += stage.num_layers;
  return sum;
}

/// Assigns the layers of every stage to groups.
void group_layers(const RecomputeConfig& config, const PipelineLayout& layout,
                  std::vector<LayerRecompute>& layers) {
  const bool is_block = config.recompute_method == "block";
  const std::int64_t count = config.recompute_num_layers.value_or(1);
  std::int64_t group = 0;
  for (const StageLayers& stage : layout.stages) {
    for (std::int64_t i = 0; i < stage.num_layers; ++i) {
      if (is_block && i >= count) break;
      if (is_block || i % count == 0) ++group;
      layers[static_cast<std::size_t>(stage.first_layer + i)].group = group;
    }
  }
}

}  // namespace

RecomputePlan recompute_plan(const MemoryConfig& memory, const PipelineLayout& layout) {
  if (!memory.activation_plan.empty())
    return recompute_plan(parse_activation_plan(memory.activation_plan).value());
  const RecomputeConfig& config = memory.recompute;
  RecomputePlan plan{.distributes_saved_activations = config.distribute_saved_activations};
  if (config.recompute_granularity != "full" && config.recompute_granularity != "selective")
    return plan;
  plan.layers.resize(static_cast<std::size_t>(num_layers(layout)));
  if (config.recompute_granularity == "full") {
    group_layers(config, layout, plan.layers);
  } else {
    std::ranges::fill(plan.layers,
                      LayerRecompute{.layernorm = has_module(config, "layernorm"),
                                     .mlp = has_module(config, "mlp"),
                                     .moe = has_module(config, "moe"),
                                     .shared_experts = has_module(config, "shared_experts")});
  }
  if (const auto mask = list_expression(config.recompute_layers)) {
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer)
      if (mask->at(layer) == 0) plan.layers[layer] = {};
  }
  return plan;
}

}  // namespace megatron
