#include "megatron/planner/communication_volume.h"

#include <algorithm>
#include <map>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

constexpr double kFloatBytes = 4;

}  // namespace

double context_bytes(const TransformerConfig& config, CpCommType exchange,
                     const ActivationLayout& layout) {
  const double tensor = static_cast<double>(layout.tensor_parallel),
               heads = static_cast<double>(config.num_attention_heads) / tensor,
               groups = std::max(1.0, static_cast<double>(config.query_groups()) / tensor),
               head_ranks = static_cast<double>(layout.head_ranks(exchange)),
               ring_ranks = static_cast<double>(layout.context_parallel) / head_ranks;
  // Rows of a query, which are as wide as those of a key, and of a value.
  const double rows = static_cast<double>(layout.tokens) *
                      static_cast<double>(config.qk_channels() + config.v_channels());
  // The groups of a rank times the ranks that divide heads.
  const double exchanged = std::max(groups, head_ranks);
  const double to_heads =
      2 * rows * layout.element_bytes * (heads + exchanged) * (head_ranks - 1) / head_ranks;
  // Dividing heads leaves as many elements, of more positions.
  const double keys_and_values = rows * exchanged;
  double around_ring = 2 * (ring_ranks - 1) * keys_and_values * layout.element_bytes;
  if (ring_ranks > 1 && exchange != CpCommType::all_gather)
    around_ring += ring_ranks * keys_and_values * std::max(kFloatBytes, layout.element_bytes);
  return to_heads + around_ring;
}

double dispatch_bytes(const TransformerConfig& config, std::int64_t expert_parallel,
                      const ActivationLayout& layout) {
  const MoeConfig& moe = config.moe;
  const double ep = static_cast<double>(expert_parallel),
               etp = static_cast<double>(layout.expert_tensor_parallel),
               tokens =
                   static_cast<double>(layout.tokens) / static_cast<double>(layout.tensor_parallel);
  const double row_bytes =
      static_cast<double>(moe.latent_size > 0 ? moe.latent_size : config.hidden_size) *
      layout.element_bytes;
  if (moe.token_dispatcher_type == TokenDispatcherType::allgather)
    return tokens * row_bytes * (ep * etp - 1);
  return tokens * static_cast<double>(moe.router_topk) * row_bytes * ((ep - 1) / ep + etp - 1);
}

double share_between_hosts(const RankList& group, std::int64_t gpus_per_host, bool all_to_all) {
  std::map<std::int64_t, double> hosts;  // the number of ranks on each
  for (const std::int64_t rank : group) hosts[rank / gpus_per_host] += 1;
  if (hosts.size() < 2) return 0;
  const double ranks = static_cast<double>(group.size());
  if (!all_to_all) return static_cast<double>(hosts.size()) / ranks;
  double pairs = 0;  // on one host
  for (const auto& [host, count] : hosts) pairs += count * (count - 1);
  return 1 - pairs / (ranks * (ranks - 1));
}

CommunicationVolume activation_volume(const Settings& settings, const ActivationLayout& layout,
                                      const std::vector<std::int64_t>& layers,
                                      std::int64_t num_microbatches) {
  const TransformerConfig& model = *settings.model;
  const double microbatches = static_cast<double>(num_microbatches),
               tp = static_cast<double>(layout.tensor_parallel);
  const double hidden_bytes = static_cast<double>(layout.tokens) *
                              static_cast<double>(model.hidden_size) * layout.element_bytes;
  const double stage_bytes = hidden_bytes / (layout.sequence_parallel ? tp : 1);
  // Attention, a dense MLP and shared experts all-reduce hidden rows once in forward and once in
  // backward, or gather and scatter them. Routed experts exchange rows instead; without sequence
  // parallelism their results and input gradients are gathered, which is half an all-reduce.
  const bool has_shared_expert = model.moe.shared_expert_intermediate_size > 0;
  const double per_expert_block =
      (has_shared_expert ? 1 : 0) + (layout.sequence_parallel ? 0 : 0.5);
  CommunicationVolume volume;
  double num_blocks = 0, num_moe_layers = 0;
  for (const std::int64_t layer : layers) {
    const LayerKind kind = model.kind(layer);
    num_blocks += (kind.has_mixer() ? 1 : 0) + (kind.has_mlp() ? 1 : 0) +
                  (kind.has_experts() ? per_expert_block : 0);
    num_moe_layers += kind.has_experts() ? 1 : 0;
    if (kind.has_mixer())
      volume.context += microbatches * context_bytes(model, kind.cp_comm_type, layout);
  }
  volume.tensor = microbatches * 2 * num_blocks * 2 * (tp - 1) / tp * hidden_bytes;
  if (settings.parallel->pipeline_model_parallel_size > 1)
    volume.pipeline =
        microbatches * 2 * stage_bytes *
        static_cast<double>(num_pipeline_chunks(*settings.parallel, model.num_layers));
  volume.expert = microbatches * num_moe_layers * 4 *
                  dispatch_bytes(model, settings.parallel->expert_model_parallel_size, layout);
  return volume;
}

}  // namespace megatron
