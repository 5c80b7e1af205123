#include "megatron/planner/activation_memory.h"

#include <numeric>

#include "megatron/config/context_sizes.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/store_options.h"

namespace megatron {

ActivationLayout activation_layout(const Settings& settings, const Rank& rank) {
  const TrainingConfig& training = *settings.training;
  return {.tokens = tokens_per_rank(settings, rank.cp.size),
          .tensor_parallel = rank.tp.size,
          .expert_tensor_parallel = rank.etp.size,
          .sequence_parallel = rank.sequence_parallel,
          .element_bytes = static_cast<double>(c10::elementSize(params_dtype(training))),
          .context_parallel = rank.cp.size,
          .context_head_ranks = rank.cp_a2a.size};
}

double hidden_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                    bool is_sliced) {
  return static_cast<double>(layout.tokens) * static_cast<double>(config.hidden_size) *
         layout.element_bytes /
         static_cast<double>(is_sliced && layout.sequence_parallel ? layout.tensor_parallel : 1);
}

double expert_rows(const MoeConfig& moe, const ActivationLayout& layout) {
  return static_cast<double>(layout.tokens * moe.router_topk * layout.expert_tensor_parallel) /
         static_cast<double>(layout.tensor_parallel);
}

double StageActivations::total_kept() const {
  return std::accumulate(kept.begin(), kept.end(), 0.0);
}

double StageActivations::total_offloaded() const {
  return std::accumulate(offloaded.begin(), offloaded.end(), 0.0);
}

double StageActivations::held_at(std::size_t i) const {
  const auto earlier = static_cast<std::ptrdiff_t>(group_begin[i]);
  double held =
      read_ahead[group_begin[i]] + std::accumulate(kept.begin(), kept.begin() + earlier, 0.0);
  for (std::size_t layer = group_begin[i]; layer <= i; ++layer) held += whole[layer].kept_bytes();
  return held;
}

bool continues_group(const ActivationPlan& plan, const std::vector<std::int64_t>& layers,
                     std::size_t i) {
  const LayerPolicy policy = plan.of(layers[i]);
  return policy.full && policy.joins_previous && i > 0 && layers[i - 1] + 1 == layers[i] &&
         plan.of(layers[i - 1]).full;
}

StageActivations stage_activations(const Settings& settings, const Rank& rank,
                                   const std::vector<std::int64_t>& layers,
                                   const ActivationPlan& plan, LayerTraces& traces) {
  StageActivations stage;
  double before = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool continues = continues_group(plan, layers, i);
    const LayerTrace* own = continues ? nullptr : &traces.of(settings, rank, layers[i], plan);
    stage.whole.push_back(traces.of(settings, rank, layers[i]));
    stage.group_begin.push_back(continues ? stage.group_begin.back() : i);
    stage.kept.push_back(continues ? 0 : own->kept_bytes());
    stage.offloaded.push_back(continues ? 0 : own->offloaded);
    stage.read_ahead.push_back(before);
    before = stage.offloaded.back();
  }
  return stage;
}

}  // namespace megatron
