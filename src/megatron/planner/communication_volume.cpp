#include "megatron/planner/communication_volume.h"

namespace megatron {

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

CommunicationVolume activation_volume(const Settings& settings, const ActivationLayout& layout,
                                      std::int64_t num_layers, std::int64_t num_moe_layers,
                                      std::int64_t num_microbatches) {
  const TransformerConfig& model = settings.model;
  const double microbatches = static_cast<double>(num_microbatches),
               tp = static_cast<double>(layout.tensor_parallel);
  const double hidden_bytes = static_cast<double>(layout.tokens) *
                              static_cast<double>(model.hidden_size) * layout.element_bytes;
  const double stage_bytes = hidden_bytes / (layout.sequence_parallel ? tp : 1);
  // Attention, a dense MLP and shared experts all-reduce hidden rows once in forward and once in
  // backward, or gather and scatter them. Routed experts exchange rows instead; without sequence
  // parallelism their results and input gradients are gathered, which is half an all-reduce.
  const bool has_shared_expert = model.moe.shared_expert_intermediate_size > 0;
  const double per_moe_layer =
      1 + (has_shared_expert ? 1 : 0) + (layout.sequence_parallel ? 0 : 0.5);
  const double num_blocks = 2 * static_cast<double>(num_layers - num_moe_layers) +
                            per_moe_layer * static_cast<double>(num_moe_layers);
  CommunicationVolume volume;
  volume.tensor = microbatches * 2 * num_blocks * 2 * (tp - 1) / tp * hidden_bytes;
  if (settings.parallel.pipeline_model_parallel_size > 1)
    volume.pipeline = microbatches * 2 * stage_bytes;
  volume.expert = microbatches * static_cast<double>(num_moe_layers) * 4 *
                  dispatch_bytes(model, settings.parallel.expert_model_parallel_size, layout);
  return volume;
}

}  // namespace megatron
