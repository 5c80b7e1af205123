// The architecture and numerics of a transformer as a plain struct, with Megatron-LM's names and
// defaults.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/layer_plan.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/recurrent_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {

/// The architecture and numerics of a transformer. It is read from flags, a checkpoint or
/// config.json; resolve() sets the derived fields.
struct TransformerConfig {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t ffn_hidden_size = 0;  ///< 0: 4·hidden, or ⌊8·hidden/3/64⌋·64 if gated
  std::int64_t kv_channels = 0;      ///< head dimension; 0: hidden/heads
  bool group_query_attention = false;
  /// Used only with group_query_attention. Otherwise resolve() sets it to the number of heads.
  std::int64_t num_query_groups = 1;
  /// Attention whose queries, keys and values are projections of latents (DeepSeek-V2, 2024). A
  /// head has qk_head_dim + qk_pos_emb_head_dim channels of queries and keys, of which only the
  /// latter are rotated, and v_head_dim channels of values; kv_channels is not used.
  bool multi_latent_attention = false;
  std::int64_t q_lora_rank = 0;  ///< size of the latent of queries; 0: they have none
  std::int64_t kv_lora_rank = 32;
  std::int64_t qk_head_dim = 128, qk_pos_emb_head_dim = 64, v_head_dim = 128;
  bool cache_mla_latents = false;  ///< generation keeps latents in place of keys and values
  std::optional<double> latent_norm_epsilon;  ///< of the norms of latents; default norm_epsilon
  std::int64_t max_position_embeddings = 0;
  std::int64_t vocab_size = 0;  ///< size of the vocabulary without padding

  Normalization normalization = Normalization::LayerNorm;
  NormPlacement norm_placement = NormPlacement::pre;
  /// The blocks of a layer read its input and add their outputs to it (GPT-J, PaLM).
  bool parallel_residual = false;
  bool share_block_norm = false;  ///< parallel blocks read one norm of the layer's input
  double norm_epsilon = 1e-5;
  bool add_norm_bias = true;  ///< of LayerNorm
  bool apply_layernorm_1p = false;
  bool apply_residual_connection_post_layernorm = false;
  bool qk_layernorm = false;
  QkNormScope qk_layernorm_scope =
      QkNormScope::head;  ///< the columns and weights of q's and k's norms
  QkNormPlacement qk_layernorm_placement = QkNormPlacement::before_rotary;
  bool qk_l2_norm = false;  ///< in layers with rotary positions, without weights (Llama 4)
  /// Multiplies attention by the sigmoid of a gate that the projection of QKV also computes,
  /// between the queries and the keys of each group (Qwen3-Next).
  bool attention_output_gate = false;
  SoftmaxType softmax_type = SoftmaxType::vanilla;  ///< a sink of 0 or a trained one per head
  std::optional<double> clip_qkv;                   ///< limit of the absolute values of q, k and v

  PositionEmbedding position_embedding_type = PositionEmbedding::learned_absolute;
  double rotary_base = 10000;
  /// Base in layers with a window or chunks, whose rotary positions are not scaled (Gemma 3).
  std::optional<double> rotary_base_local;
  double rotary_percent = 1.0;
  bool rotary_interleaved = false;
  /// N: every N-th layer has no rotary positions; or a list expression with 1 for such layers.
  std::string no_rope_freq;
  /// Factor A of the temperature of layers without rotary positions: the query of position p is
  /// multiplied by 1 + A·log(1 + ⌊(p + 1) / floor⌋) (Llama 4); 0: none.
  double attn_temperature_scale = 0;
  std::int64_t attn_temperature_floor = 8192;
  /// All layers have the temperature, with ⌊p / floor⌋ instead (Ministral 3).
  bool attn_temperature_all_layers = false;
  RopeScaling rope_scaling_type = RopeScaling::none;
  double rope_scaling_factor = 8.0;                           ///< linear, llama3 and yarn
  double rope_low_freq_factor = 1.0;                          ///< llama3
  double rope_high_freq_factor = 4.0;                         ///< llama3
  std::int64_t rope_original_max_position_embeddings = 8192;  ///< llama3 (8192) and yarn (4096)
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  double yarn_mscale = 1;
  double yarn_mscale_all_dim = 0;
  bool yarn_correction_range_round_to_int = true;
  std::optional<double> yarn_attention_factor;  ///< Hugging Face's attention_factor

  Activation activation = Activation::gelu;
  bool gated_linear_unit = false;  ///< SwiGLU = silu + gated, GEGLU = gelu + gated
  /// Bound C of a gated activation: gate ≤ C and |up| ≤ C.
  std::optional<double> activation_func_clamp_value;
  double glu_linear_offset = 0;  ///< the gate multiplies up + offset
  bool add_bias_linear = true;
  bool add_qkv_bias = false;     ///< bias on QKV even if add_bias_linear is false
  bool add_output_bias = false;  ///< of the logits, after logit_scale
  bool untie_embeddings_and_output_weights = false;
  /// Sliding window (left, right); −1 = unlimited.
  std::optional<std::array<std::int64_t, 2>> window_size;
  /// N: every N-th layer uses full attention; or a list expression with 1 = windowed. Empty: every
  /// layer is windowed.
  std::string window_attn_skip_freq;
  /// If > 0, a query sees only keys of its own chunk of so many positions, in the layers that
  /// window_attn_skip_freq would give a window.
  std::int64_t attention_chunk_size = 0;

  bool bert_binary_head = true;  ///< of BERT: predicts the order of two sentences
  bool bert_lm_head = true;  ///< of BERT: predicts masked tokens; else it makes embeddings alone
  /// Of BERT: the classes that finetuning predicts, in place of what pretraining does; 1: it scores
  /// one of several choices; 0: it is pretrained.
  std::int64_t num_classes = 0;
  std::optional<std::int64_t> num_tokentypes;  ///< of BERT: see token_types()
  bool embedding_norm = false;                 ///< of the sum of the embeddings
  std::int64_t position_offset = 0;  ///< row of the first position in the table of learned ones

  MoeConfig moe;
  MambaConfig mamba;                       ///< of layers M of a hybrid pattern
  LinearAttentionConfig linear_attention;  ///< of layers G, and of layers of two blocks

  /// Depths of multi-token prediction (DeepSeek-V3, 2024): each predicts one more token by one more
  /// layer, of the kind of the last one, or by those that a hybrid pattern has behind a /
  /// (models/multi_token_prediction.h).
  std::int64_t mtp_num_layers = 0;
  std::int64_t mtp_depth_layers = 1;     ///< layers of a depth; a hybrid pattern sets it
  double mtp_loss_scaling_factor = 0.1;  ///< of the mean of the losses of all depths
  bool mtp_use_repeated_layer = false;   ///< all depths have the weights of the first

  /// T5: the layers of the decoder, the last ones of num_layers; those before are the encoder's. 0:
  /// the model is one stack.
  std::int64_t decoder_num_layers = 0;
  /// Relative positions (Raffel et al. 2020, section 2.1): scores have a learned bias for the
  /// bucket of the distance of query and key. Distances from the second number on share a bucket.
  std::int64_t relative_attention_num_buckets = 32, relative_attention_max_distance = 128;
  bool relative_attention_per_layer = false;  ///< each layer has its own biases (umT5)

  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double init_method_std = 0.02;
  std::optional<double> embedding_init_method_std;
  bool init_method_xavier_uniform = false;
  bool fp32_residual_connection = false;
  bool attention_softmax_in_fp32 = false;
  bool apply_query_key_layer_scaling = false;
  /// Default 1/√kv_channels, or that of multi-latent attention (nn/multi_latent_attention.h).
  std::optional<double> softmax_scale;
  double attn_logit_softcapping = 0;   ///< if > 0, scores become cap·tanh(score / cap) (Gemma 2)
  double final_logit_softcapping = 0;  ///< the same of the logits, after logit_scale
  double logit_scale = 1;              ///< factor of the logits (Cohere; 1/logits_scaling, Granite)
  double embedding_multiplier = 1;     ///< factor of the embeddings
  double residual_multiplier = 1;      ///< factor of the output of each block

  /// The layers of a hybrid model, each one block: M Mamba-2, G gated delta net, * attention, +
  /// multi-latent attention, - MLP, E experts; | separates pipeline stages, and / begins a depth of
  /// multi-token prediction (HybridPattern). Empty: each layer has a mixer and a feed-forward
  /// block.
  std::string hybrid_layer_pattern;
  /// The kinds of the layers of the whole model, and behind them those of a depth of a hybrid
  /// pattern. resolve() computes them from the texts that name layers. Empty: all layers are alike.
  std::vector<LayerKind> layers;

  /// Returns the number of layers with those of multi-token prediction, which are the last.
  std::int64_t num_all_layers() const { return num_layers + mtp_num_layers * mtp_depth_layers; }
  std::int64_t encoder_num_layers() const { return num_layers - decoder_num_layers; }
  bool has_relative_bias() const { return position_embedding_type == PositionEmbedding::relative; }
  /// Returns the kind of a layer, by its 0-based index among all layers.
  LayerKind kind(std::int64_t layer) const {
    if (!layers.empty()) {
      const bool has_depth = std::ssize(layers) > num_layers;
      if (layer >= num_layers)
        layer = has_depth ? num_layers + (layer - num_layers) % mtp_depth_layers : num_layers - 1;
      return layers.at(static_cast<std::size_t>(layer));
    }
    const LayerKind full = full_attention_kind(layer);
    if (linear_attention.variant == AttentionVariant::none) return full;
    return {.mixer = MixerKind::gated_delta_net, .feed_forward = full.feed_forward};
  }
  /// Returns the kind of a layer of two blocks that has full attention.
  LayerKind full_attention_kind(std::int64_t layer) const {
    return {.mixer = multi_latent_attention ? MixerKind::latent_attention : MixerKind::attention,
            .feed_forward = moe.num_experts > 0 ? FeedForwardKind::experts : FeedForwardKind::mlp,
            .window = window_size,
            .chunk = attention_chunk_size,
            .rotary = rotary_base_local && (window_size || attention_chunk_size > 0)
                          ? RotaryKind::local
                          : RotaryKind::global,
            .has_cross_attention = decoder_num_layers > 0 && layer >= encoder_num_layers()};
  }

  /// Returns the number of token types that BERT embeds.
  std::int64_t token_types() const {
    return num_tokentypes.value_or(bert_binary_head || num_classes > 0 ? 2 : 0);
  }
  /// Returns whether a head predicts tokens.
  bool has_lm_head() const { return bert_lm_head && num_classes == 0; }
  bool has_norm_bias() const { return normalization == Normalization::LayerNorm && add_norm_bias; }
  bool is_gated() const { return gated_linear_unit; }
  /// Returns whether queries and keys are rotated.
  bool has_rotary() const {
    return position_embedding_type == PositionEmbedding::rope ||
           position_embedding_type == PositionEmbedding::yarn || multi_latent_attention;
  }
  /// Return the channels of a head's query and key, of its value, and those that positions rotate.
  std::int64_t qk_channels() const {
    return multi_latent_attention ? qk_head_dim + qk_pos_emb_head_dim : kv_channels;
  }
  std::int64_t v_channels() const { return multi_latent_attention ? v_head_dim : kv_channels; }
  std::int64_t rotated_channels() const {
    const std::int64_t width = multi_latent_attention ? qk_pos_emb_head_dim : kv_channels;
    return static_cast<std::int64_t>(static_cast<double>(width) * rotary_percent);
  }
  std::int64_t query_groups() const {
    return group_query_attention ? num_query_groups : num_attention_heads;
  }
  /// Returns the sizes of a recurrent layer.
  RecurrentSizes recurrent_sizes(MixerKind mixer) const;
};

}  // namespace megatron
