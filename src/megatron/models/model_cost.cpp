#include "megatron/models/model_cost.h"

#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

double projection_size(const ModelDimensions& d) {
  return static_cast<double>(d.kv_channels) * static_cast<double>(d.num_attention_heads);
}

double active_moe_weights(const ModelDimensions& d) {
  return d.expert_weights(d.moe_ffn_hidden_size * d.moe_topk) +
         d.mlp_weights(d.moe_shared_expert_ffn_hidden_size) + d.latent_projection_weights();
}

}  // namespace

double ModelDimensions::attention_weights() const {
  return 2.0 * static_cast<double>(hidden_size) * static_cast<double>(kv_channels) *
         (static_cast<double>(num_attention_heads) * (attention_output_gate ? 1.5 : 1.0) +
          static_cast<double>(query_groups));
}

double ModelDimensions::mlp_weights(std::int64_t width) const {
  return (gated_linear_unit ? 3.0 : 2.0) * static_cast<double>(hidden_size) *
         static_cast<double>(width);
}

double ModelDimensions::expert_weights(std::int64_t width) const {
  const double narrowing =
      moe_latent_size > 0 ? static_cast<double>(moe_latent_size) / static_cast<double>(hidden_size)
                          : 1;
  return mlp_weights(width) * narrowing;
}

double ModelDimensions::latent_projection_weights() const {
  return 2.0 * static_cast<double>(hidden_size) * static_cast<double>(moe_latent_size);
}

ModelDimensions model_dimensions(const TransformerConfig& config, std::int64_t padded_vocab_size) {
  ModelDimensions dimensions{.num_layers = config.num_layers,
                             .hidden_size = config.hidden_size,
                             .num_attention_heads = config.num_attention_heads,
                             .query_groups = config.query_groups(),
                             .kv_channels = config.kv_channels,
                             .attention_output_gate = config.attention_output_gate,
                             .ffn_hidden_size = config.ffn_hidden_size,
                             .gated_linear_unit = config.gated_linear_unit,
                             .rms_norm = config.normalization == Normalization::RMSNorm,
                             .untied_output = config.untie_embeddings_and_output_weights,
                             .padded_vocab_size = padded_vocab_size};
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerKind kind = config.kind(layer);
    dimensions.num_moe_layers += kind.has_experts() ? 1 : 0;
    dimensions.num_layers_without_mixer += kind.has_mixer() ? 0 : 1;
    dimensions.num_layers_without_feed_forward +=
        kind.feed_forward == FeedForwardKind::none ? 1 : 0;
  }
  const MoeConfig& moe = config.moe;
  if (moe.num_experts == 0) return dimensions;
  dimensions.num_experts = moe.num_experts;
  dimensions.moe_topk = moe.router_topk;
  dimensions.moe_ffn_hidden_size =
      moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : config.ffn_hidden_size;
  dimensions.moe_shared_expert_ffn_hidden_size = moe.shared_expert_intermediate_size;
  dimensions.moe_latent_size = moe.latent_size;
  dimensions.moe_router_bias = config.add_bias_linear;
  return dimensions;
}

double num_floating_point_operations(const ModelDimensions& d, double num_tokens,
                                     double num_squared_tokens) {
  const double hidden = static_cast<double>(d.hidden_size),
               mtp = static_cast<double>(d.num_mtp_layers);
  const double layers = static_cast<double>(d.num_layers - d.num_layers_without_mixer) + mtp;
  const double moe_layers =
      static_cast<double>(d.num_moe_layers) + (d.mtp_layers_are_moe ? mtp : 0);
  const double dense_layers =
      static_cast<double>(d.num_dense_layers()) + (d.mtp_layers_are_moe ? 0 : mtp);
  const double mlp =
      d.mlp_weights(d.ffn_hidden_size) * dense_layers + active_moe_weights(d) * moe_layers;
  const double mtp_projection = mtp * (3 * hidden + 2 * hidden * hidden);
  const double logits = hidden * static_cast<double>(d.padded_vocab_size) * (mtp + 1);
  const double linear = mlp + d.attention_weights() * layers + mtp_projection + logits;
  return 6 * num_tokens * linear + 6 * num_squared_tokens * projection_size(d) * layers;
}

double num_floating_point_operations(const ModelDimensions& dimensions, std::int64_t batch_size,
                                     std::int64_t sequence_length) {
  const double tokens = static_cast<double>(batch_size) * static_cast<double>(sequence_length);
  return num_floating_point_operations(dimensions, tokens,
                                       tokens * static_cast<double>(sequence_length));
}

}  // namespace megatron
