#include "megatron/config/context_layers.h"

#include <algorithm>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

ContextExchange exchange_of(const ParallelConfig& parallel, CpCommType type) {
  ContextExchange exchange{.ranks = parallel.context_parallel_size,
                           .gathers = type == CpCommType::all_gather};
  if (type == CpCommType::a2a) exchange.head_ranks = exchange.ranks;
  if (type == CpCommType::a2a_p2p)
    exchange.head_ranks = parallel.hierarchical_context_parallel_sizes.front();
  return exchange;
}

}  // namespace

std::vector<ContextLayers> context_layers(const Settings& settings) {
  const TransformerConfig& model = *settings.model;
  const std::int64_t tp = settings.parallel->tensor_model_parallel_size;
  std::vector<ContextLayers> all;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerKind kind = model.kind(layer);
    if (!kind.has_attention()) continue;
    const CpCommType type = kind.cp_comm_type;
    PositionMask mask{.chunk = kind.chunk};
    if (kind.window) mask.window = *kind.window;
    auto found = std::ranges::find_if(all, [&](const ContextLayers& one) {
      return one.comm_type == type && one.attention.mask == mask;
    });
    if (found == all.end()) {
      const ContextAttention attention{
          .exchange = exchange_of(*settings.parallel, type),
          .mask = mask,
          .length = settings.training->seq_length,
          .samples = settings.training->micro_batch_size,
          .heads = model.num_attention_heads / tp,
          .groups = std::max<std::int64_t>(1, model.query_groups() / tp),
          .key_channels = model.qk_channels(),
          .value_channels = model.v_channels(),
          .element_bytes = settings.training->bf16 || settings.training->fp16 ? 2.0 : 4.0};
      found = all.insert(all.end(), {.comm_type = type, .layers = {}, .attention = attention});
    }
    found->layers.push_back(layer);
  }
  return all;
}

}  // namespace megatron
