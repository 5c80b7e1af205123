// Architectures in canonical spelling, so that two can be compared member by member.
#include <algorithm>
#include <cmath>
#include <vector>

#include "megatron/config/layer_plan.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

using Config = TransformerConfig;

/// Gives members their defaults.
template <class T, class... V>
void reset(T& object, V T::*... members) {
  const T initial;
  ((object.*members = initial.*members), ...);
}

void canonicalize_positions(Config& c) {
  if (c.position_embedding_type == PositionEmbedding::yarn) {
    c.position_embedding_type = PositionEmbedding::rope;
    c.rope_scaling_type = RopeScaling::yarn;
  }
  if (!c.has_rotary())
    reset(c, &Config::rotary_base, &Config::rotary_percent, &Config::rotary_interleaved,
          &Config::rotary_base_local, &Config::no_rope_freq, &Config::rope_scaling_type);
  if (c.position_embedding_type != PositionEmbedding::learned_absolute)
    reset(c, &Config::max_position_embeddings);
  if (!c.has_relative_bias())
    reset(c, &Config::relative_attention_num_buckets, &Config::relative_attention_max_distance,
          &Config::relative_attention_per_layer);
  const bool llama3 = c.rope_scaling_type == RopeScaling::llama3,
             yarn = c.rope_scaling_type == RopeScaling::yarn;
  if (c.rope_scaling_type == RopeScaling::none) reset(c, &Config::rope_scaling_factor);
  if (!llama3) reset(c, &Config::rope_low_freq_factor, &Config::rope_high_freq_factor);
  if (!llama3 && !yarn) reset(c, &Config::rope_original_max_position_embeddings);
  if (!yarn)
    reset(c, &Config::yarn_beta_fast, &Config::yarn_beta_slow, &Config::yarn_mscale,
          &Config::yarn_mscale_all_dim, &Config::yarn_correction_range_round_to_int,
          &Config::yarn_attention_factor);
}

/// Gives sizes that the kind of attention does not use one value each.
void canonicalize_latents(Config& c) {
  if (c.multi_latent_attention) {
    c.kv_channels = c.v_head_dim;
    c.add_qkv_bias = false;
    if (!c.qk_layernorm || c.latent_norm_epsilon == c.norm_epsilon) c.latent_norm_epsilon.reset();
    return;
  }
  reset(c, &Config::q_lora_rank, &Config::kv_lora_rank, &Config::qk_head_dim,
        &Config::qk_pos_emb_head_dim, &Config::v_head_dim, &Config::latent_norm_epsilon);
}

void canonicalize_window(Config& c) {
  const std::vector<std::int64_t> windows = windowed_layers(c), nope = nope_layers(c);
  if (!windows.empty() && !std::ranges::count(windows, 1)) {
    c.window_size.reset();
    c.attention_chunk_size = 0;
  }
  if (c.window_size && (*c.window_size)[0] < 0) c.window_size.reset();
  if (c.window_size) (*c.window_size)[1] = 0;
  const bool is_local = c.window_size || c.attention_chunk_size > 0;
  const bool rotates_alike =
      c.rotary_base_local == c.rotary_base && c.rope_scaling_type == RopeScaling::none;
  if (!is_local || rotates_alike) c.rotary_base_local.reset();
  set_windows(c, is_local ? windows : std::vector<std::int64_t>());
  set_nope(c, nope);
  if (c.no_rope_freq.empty() && !c.attn_temperature_all_layers) c.attn_temperature_scale = 0;
  if (c.attn_temperature_scale == 0)
    reset(c, &Config::attn_temperature_floor, &Config::attn_temperature_all_layers);
}

/// Gives what no layer has one value each, and sizes that follow from others their own.
void canonicalize_blocks(Config& c) {
  const bool attends = has_attention(c),
             has_any_feed_forward = has_feed_forward(c, FeedForwardKind::mlp) ||
                                    has_feed_forward(c, FeedForwardKind::experts);
  if (!has_mixer(c, MixerKind::mamba)) {
    c.mamba = {};
  } else {
    c.mamba.num_heads = c.recurrent_sizes(MixerKind::mamba).heads;
    c.mamba.norm_groups = c.mamba.num_norm_groups();
  }
  if (!has_mixer(c, MixerKind::gated_delta_net)) c.linear_attention = {};
  if (!c.apply_layernorm_1p) c.linear_attention.norm_1p = true;
  if (c.linear_attention.norm_epsilon == c.norm_epsilon) c.linear_attention.norm_epsilon.reset();
  if (c.norm_placement == NormPlacement::output_unless_recurrent && !has_recurrent_layers(c))
    c.norm_placement = NormPlacement::output;
  if (!attends) {
    c.num_attention_heads = c.num_query_groups = 1;
    c.kv_channels = c.hidden_size;
    if (c.has_rotary()) c.position_embedding_type = PositionEmbedding::none;
    reset(c, &Config::multi_latent_attention, &Config::qk_layernorm, &Config::qk_l2_norm,
          &Config::attention_output_gate, &Config::softmax_type, &Config::clip_qkv,
          &Config::window_size, &Config::attention_chunk_size, &Config::softmax_scale,
          &Config::attn_logit_softcapping, &Config::add_qkv_bias);
  }
  if (!has_any_feed_forward) {
    c.ffn_hidden_size = c.hidden_size;
    reset(c, &Config::activation, &Config::gated_linear_unit, &Config::activation_func_clamp_value,
          &Config::glu_linear_offset);
  }
  if (!attends && !has_any_feed_forward) c.add_bias_linear = false;
}

void canonicalize_router(MoeConfig& moe) {
  if (moe.router_score_function != RouterScore::softmax) moe.router_pre_softmax = false;
  const double factor = moe.router_topk_scaling_factor.value_or(1);
  if (factor == 0 || factor == 1) moe.router_topk_scaling_factor.reset();
  const std::int64_t num_groups = moe.router_num_groups.value_or(0);
  const bool keeps_all_groups = moe.router_group_topk.value_or(0) == num_groups;
  if (num_groups == 0 || moe.router_group_topk.value_or(0) == 0 || keeps_all_groups) {
    moe.router_num_groups.reset();
    moe.router_group_topk.reset();
    moe.router_group_score_topk = 0;
  } else if (moe.router_topk % *moe.router_group_topk == 0 &&
             moe.router_group_score_topk == moe.router_topk / *moe.router_group_topk) {
    moe.router_group_score_topk = 0;
  }
}

void canonicalize_experts(Config& c) {
  MoeConfig& moe = c.moe;
  if (!has_feed_forward(c, FeedForwardKind::experts)) moe.num_experts = 0;
  if (moe.num_experts == 0) {
    moe = MoeConfig{};
    return;
  }
  set_experts(c, expert_layers(c));
  if (!has_feed_forward(c, FeedForwardKind::mlp)) c.ffn_hidden_size = moe.ffn_hidden_size;
  if (moe.shared_expert_intermediate_size == 0)
    moe.shared_expert_gate = moe.shared_expert_overlap = false;
  if (!moe.expert_capacity_factor) {
    moe.pad_expert_input_to_capacity = false;
    moe.token_drop_policy = MoeConfig{}.token_drop_policy;
  }
  canonicalize_router(moe);
}

}  // namespace

TransformerConfig canonical_architecture(TransformerConfig c) {
  resolve(c);
  if (!pair_blocks(c)) std::erase(c.hybrid_layer_pattern, '|');
  canonicalize_blocks(c);
  c.group_query_attention = c.num_query_groups != c.num_attention_heads;
  canonicalize_latents(c);
  if (c.add_bias_linear) c.add_qkv_bias = false;
  if (c.normalization != Normalization::LayerNorm) c.add_norm_bias = true;
  if (!c.qk_layernorm) {
    c.qk_layernorm_scope = QkNormScope::head;
    c.qk_layernorm_placement = QkNormPlacement::before_rotary;
  }
  c.num_tokentypes = c.token_types();
  if (c.num_classes > 0) reset(c, &Config::bert_lm_head, &Config::bert_binary_head);
  if (!c.parallel_residual) c.share_block_norm = false;
  if (c.mtp_num_layers < 2) c.mtp_use_repeated_layer = false;
  if (c.softmax_scale && c.kv_channels > 0 && !c.multi_latent_attention &&
      *c.softmax_scale == 1.0 / std::sqrt(static_cast<double>(c.kv_channels)))
    c.softmax_scale.reset();
  canonicalize_positions(c);
  canonicalize_window(c);
  canonicalize_experts(c);
  resolve_layers(c);
  return c;
}

}  // namespace megatron
