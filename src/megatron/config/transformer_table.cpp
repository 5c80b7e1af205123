// Declares the flags of the model's architecture: size, attention, norms, MLP, experts, positions,
// dropout and initialization.
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using Config = TransformerConfig;
using Table = FieldTable<Config>;

void add_size(Table& t) {
  t.group("Model").following().architecture(ArchitectureRole::forward);
  t.field("num_layers", &Config::num_layers, "number of transformer layers")
      .between(1, kMaxLayers)
      .alias("encoder-num-layers");
  t.custom(
       "hybrid_layer_pattern", ValueKind::text,
       [](Config& config, std::span<const std::string> values) {
         std::string pattern;
         read_values(pattern, values);
         check_hybrid_pattern(pattern);
         config.hybrid_layer_pattern = pattern;
       },
       [](const Config& config) { return write_values(config.hybrid_layer_pattern); },
       "layers of `pretrain hybrid`, each one block with its norm: M Mamba-2, G gated delta net, * "
       "attention, + multi-latent attention, - MLP, E experts; | separates pipeline stages, and / "
       "begins the layers of each depth of multi-token prediction (M-M-*E/*E/*E). It gives the "
       "number of layers")
      .stores(&Config::hybrid_layer_pattern)
      .none_is_empty()
      .older_name("hybrid-override-pattern")
      .older_checkpoints_lack_it();
  t.field("hidden_size", &Config::hidden_size, "hidden size of the model").between(1, kMaxSize);
  t.field("num_attention_heads", &Config::num_attention_heads, "number of query heads")
      .between(1, kMaxSize);
  t.field("ffn_hidden_size", &Config::ffn_hidden_size,
          "hidden size of the MLP; 0: 4 x hidden size, or 8/3 x hidden size rounded down to a "
          "multiple of 64 with a gated activation")
      .between(0, kMaxSize);
  t.field("kv_channels", &Config::kv_channels,
          "size of each attention head; 0: hidden size / number of heads")
      .between(0, kMaxSize);
  t.field("group_query_attention", &Config::group_query_attention,
          "use grouped-query attention: groups of query heads share keys and values");
  t.field("num_query_groups", &Config::num_query_groups,
          "number of key and value heads with --group-query-attention")
      .between(1, kMaxSize)
      .note({[](const Settings& s) {
               return !s.model->group_query_attention && s.checkpoint->load.empty();
             },
             "without effect: there is no --group-query-attention"});
  t.field("max_position_embeddings", &Config::max_position_embeddings,
          "longest sequence that the position embeddings cover; 0: the sequence length")
      .between(0, kMaxSize);
  t.field("untie_embeddings_and_output_weights", &Config::untie_embeddings_and_output_weights,
          "use separate weights for the embedding and the output layer");
}

void add_latent_attention(Table& t) {
  t.group("Multi-latent attention");
  const auto size = [&](const char* name, std::int64_t Config::*member, std::int64_t least,
                        const char* help) {
    return t.field(name, member, help).between(least, kMaxSize).older_checkpoints_lack_it();
  };
  t.field("multi_latent_attention", &Config::multi_latent_attention,
          "use multi-latent attention: queries, keys and values are projections of latents of "
          "--q-lora-rank and --kv-lora-rank channels, as in DeepSeek-V2 and V3")
      .older_checkpoints_lack_it();
  size("q_lora_rank", &Config::q_lora_rank, 0,
       "channels of the latent of queries; none: queries are projections of the hidden state")
      .none_is("0");
  size("kv_lora_rank", &Config::kv_lora_rank, 1, "channels of the latent of keys and values");
  size("qk_head_dim", &Config::qk_head_dim, 1,
       "channels of each head's queries and keys that positions do not rotate")
      .alias("qk-nope-head-dim");
  size("qk_pos_emb_head_dim", &Config::qk_pos_emb_head_dim, 2,
       "channels of each head's queries, and of a key that all heads share, that positions rotate")
      .alias("qk-rope-head-dim");
  size("v_head_dim", &Config::v_head_dim, 1, "channels of each head's values");
}

void add_encoder(Table& t) {
  t.group("BERT");
  t.field("bert_binary_head", &Config::bert_binary_head,
          "train BERT on single texts, without the head that predicts the order of two sentences")
      .off_flag("bert-no-binary-head")
      .older_checkpoints_lack_it();
  t.field("num_classes", &Config::num_classes,
          "number of classes that --task predicts; default: those of the data; rank: 1")
      .between(0, kMaxSize)
      .older_checkpoints_lack_it();
  t.field("num_tokentypes", &Config::num_tokentypes,
          "number of token types with an embedding; default: 2 with the binary head or --task, "
          "else 0")
      .between(0, kMaxSize)
      .older_checkpoints_lack_it();
  t.field("embedding_norm", &Config::embedding_norm,
          "normalize the embeddings before the dropout, as Devlin et al. do")
      .older_checkpoints_lack_it();
  t.field("position_offset", &Config::position_offset,
          "row of the first position in the table of learned positions; RoBERTa's is 2")
      .between(0, kMaxSize)
      .older_checkpoints_lack_it();
}

void add_multi_token_prediction(Table& t) {
  t.group("Multi-token prediction");
  t.field("mtp_num_layers", &Config::mtp_num_layers,
          "depths of multi-token prediction, as in DeepSeek-V3: each is a further layer that "
          "predicts one more token during training")
      .none_is("0")
      .between(0, kMaxLayers)
      .older_checkpoints_lack_it();
  t.field("mtp_use_repeated_layer", &Config::mtp_use_repeated_layer,
          "use one layer, with the same weights, at every depth of multi-token prediction")
      .older_checkpoints_lack_it();
  t.field("mtp_loss_scaling_factor", &Config::mtp_loss_scaling_factor,
          "factor of the mean of the losses of multi-token prediction, which are added to the loss")
      .at_least(0)
      .architecture(ArchitectureRole::training)
      .older_checkpoints_lack_it();
}

void add_decoder(Table& t) {
  t.group("T5");
  t.field("decoder_num_layers", &Config::decoder_num_layers,
          "number of layers of T5's decoder, by default as many as the encoder has")
      .none_is("0")
      .between(1, kMaxLayers)
      .older_checkpoints_lack_it();
  t.field("relative_attention_num_buckets", &Config::relative_attention_num_buckets,
          "number of biases of each head with --position-embedding-type relative")
      .between(4, kMaxSize)
      .older_checkpoints_lack_it();
  t.field("relative_attention_max_distance", &Config::relative_attention_max_distance,
          "distance from which on positions share a bias with --position-embedding-type relative, "
          "above half of --relative-attention-num-buckets")
      .between(2, kMaxSize)
      .older_checkpoints_lack_it();
  t.field("relative_attention_per_layer", &Config::relative_attention_per_layer,
          "give each layer biases of its own with --position-embedding-type relative, as umT5 does")
      .older_checkpoints_lack_it();
}

void add_layers(Table& t) {
  t.group("Layers");
  t.field("normalization", &Config::normalization, "type of the norm layers");
  t.field("norm_placement", &Config::norm_placement,
          "pre: normalize the input of each block; post: normalize after the residual addition; "
          "sandwich: normalize the input and the output of each block (Gemma 2); output: normalize "
          "the output alone (OLMo 2); output_unless_recurrent: the same, but pre in layers with "
          "Mamba-2 or a gated delta net (OLMo Hybrid)");
  t.field("parallel_residual", &Config::parallel_residual,
          "let attention and MLP of a layer both read its input, and add both outputs to it")
      .older_checkpoints_lack_it();
  t.field("share_block_norm", &Config::share_block_norm,
          "with --parallel-residual: attention and MLP read the same norm of the layer's input, as "
          "in Cohere's models and Falcon")
      .older_checkpoints_lack_it();
  t.field("norm_epsilon", &Config::norm_epsilon, "epsilon of the norms")
      .above(0)
      .alias("layernorm-epsilon");
  t.field("add_norm_bias", &Config::add_norm_bias, "disable the biases of LayerNorm")
      .off_flag("disable-norm-bias")
      .older_checkpoints_lack_it();
  t.field("apply_layernorm_1p", &Config::apply_layernorm_1p,
          "store norm weights as weight - 1, so that they are centered around zero")
      .alias("layernorm-zero-centered-gamma");
  t.field("apply_residual_connection_post_layernorm",
          &Config::apply_residual_connection_post_layernorm,
          "use the output of the norm as the residual instead of its input");
  t.field("qk_layernorm", &Config::qk_layernorm,
          "normalize queries and keys, by default before the rotary embedding, or the latents of "
          "multi-latent attention");
  t.field("qk_layernorm_scope", &Config::qk_layernorm_scope,
          "head: normalize the queries and keys of each head; all_heads: those of all heads of a "
          "token together, as OLMoE does; each_head: those of each head, by weights of its own "
          "without biases, as Cohere does")
      .older_checkpoints_lack_it();
  t.field("qk_layernorm_placement", &Config::qk_layernorm_placement,
          "whether --qk-layernorm normalizes before or after the rotary embedding")
      .older_checkpoints_lack_it();
  t.field("qk_l2_norm", &Config::qk_l2_norm,
          "divide the queries and keys of each head by their root mean square after the rotary "
          "embedding, in layers that have one")
      .alias("export-qk-l2-norm")
      .older_checkpoints_lack_it();
  t.field("attention_output_gate", &Config::attention_output_gate,
          "multiply the output of attention by the sigmoid of a gate, which the projection of "
          "queries, keys and values also computes")
      .older_checkpoints_lack_it();
  t.field("softmax_type", &Config::softmax_type,
          "off-by-one: add 1 to the sum of the exponentials of each query; learnable: add exp(s), "
          "with a trained number s for each head")
      .older_checkpoints_lack_it();
  t.field("softmax_scale", &Config::softmax_scale,
          "factor of the attention scores; default: 1 / square root of --kv-channels")
      .above(0);
  t.field("attn_logit_softcapping", &Config::attn_logit_softcapping,
          "if C > 0: replace each attention score x by C tanh(x / C), as Gemma 2 does")
      .at_least(0)
      .older_checkpoints_lack_it();
  t.field("clip_qkv", &Config::clip_qkv,
          "clamp queries, keys and values to [-C, C] before the rotary embedding")
      .above(0)
      .older_checkpoints_lack_it();
  t.field("add_bias_linear", &Config::add_bias_linear, "disable the biases of the linear layers")
      .off_flag("disable-bias-linear");
  t.field("add_qkv_bias", &Config::add_qkv_bias,
          "add a bias to queries, keys and values, even with --disable-bias-linear");
  t.field("window_size", &Config::window_size,
          "size of the sliding attention window as \"left,right\"; -1: unlimited");
  t.field(
       "window_attn_skip_freq", &Config::window_attn_skip_freq,
       "N: every N-th layer uses full attention; or a list such as ([1]*3+[0])*2 with 1 for "
       "each layer that uses the window. Layers of a hybrid pattern that have no attention count "
       "too")
      .architecture(ArchitectureRole::none)  // the architecture has window_layers
      .differs_silently();
  t.field("attention_chunk_size", &Config::attention_chunk_size,
          "if > 0: attention sees only positions of the query's own chunk of this size, in the "
          "layers that --window-attn-skip-freq names")
      .between(0, kMaxSize)
      .older_checkpoints_lack_it();
}

void add_multipliers(Table& t) {
  t.field("embedding_multiplier", &Config::embedding_multiplier,
          "multiply the embeddings by this number")
      .older_checkpoints_lack_it();
  t.field("residual_multiplier", &Config::residual_multiplier,
          "multiply the output of each block by this number before the residual addition")
      .older_checkpoints_lack_it();
  t.field("logit_scale", &Config::logit_scale, "multiply the logits by this number")
      .above(0)
      .older_checkpoints_lack_it();
  t.field("add_output_bias", &Config::add_output_bias,
          "add a bias to the logits, after --logit-scale, as Phi-2 does")
      .older_checkpoints_lack_it();
  t.field("final_logit_softcapping", &Config::final_logit_softcapping,
          "if C > 0: replace each logit x by C tanh(x / C), after --logit-scale")
      .at_least(0)
      .older_checkpoints_lack_it();
}

void add_mlp(Table& t) {
  t.group("MLP");
  t.field("activation", &Config::activation, "activation function of the MLP");
  t.field("gated_linear_unit", &Config::gated_linear_unit,
          "multiply the activation by a second linear projection");
  t.field("activation_func_clamp_value", &Config::activation_func_clamp_value,
          "with --quick-geglu, or with --swiglu and experts: limit the gate to at most this value "
          "and the second projection to between minus and plus this value")
      .above(0)
      .older_checkpoints_lack_it();
  t.field("glu_linear_offset", &Config::glu_linear_offset,
          "with --quick-geglu: add this number to the second projection")
      .older_checkpoints_lack_it();
}

void add_rope_scaling(Table& t) {
  t.field("rope_scaling_type", &Config::rope_scaling_type,
          "method that scales rotary positions beyond the context length of pretraining");
  t.field("rope_scaling_factor", &Config::rope_scaling_factor, "factor of the rotary scaling")
      .above(0);
  t.field("rope_low_freq_factor", &Config::rope_low_freq_factor,
          "Llama 3's scaling: low frequency factor")
      .above(0);
  t.field("rope_high_freq_factor", &Config::rope_high_freq_factor,
          "Llama 3's scaling: high frequency factor")
      .above(0);
  t.field("rope_original_max_position_embeddings", &Config::rope_original_max_position_embeddings,
          "context length of pretraining, for llama3 and yarn scaling; with yarn the default is "
          "4096")
      .between(1, kMaxSize)
      .alias("yarn-original-max-position-embeddings")
      .alias("original-max-position-embeddings");
  t.field("yarn_beta_fast", &Config::yarn_beta_fast,
          "YaRN: number of rotations above which a dimension is not scaled")
      .above(0)
      .alias("beta-fast");
  t.field("yarn_beta_slow", &Config::yarn_beta_slow,
          "YaRN: number of rotations below which a dimension is scaled fully")
      .above(0)
      .alias("beta-slow");
  t.field("yarn_mscale", &Config::yarn_mscale, "YaRN: attention scale").at_least(0).alias("mscale");
  t.field("yarn_mscale_all_dim", &Config::yarn_mscale_all_dim,
          "YaRN: attention scale of all dimensions, which also scales the scores of multi-latent "
          "attention")
      .at_least(0)
      .alias("mscale-all-dim");
  t.field("yarn_correction_range_round_to_int", &Config::yarn_correction_range_round_to_int,
          "YaRN: do not round the correction range to integers");
  t.field("yarn_attention_factor", &Config::yarn_attention_factor,
          "YaRN: attention factor, as attention_factor in a Hugging Face config.json")
      .above(0);
}

void add_positions(Table& t) {
  t.group("Positions");
  t.field("position_embedding_type", &Config::position_embedding_type,
          "type of position embedding");
  t.field("rotary_base", &Config::rotary_base, "base of the rotary frequencies").above(0);
  t.field("rotary_base_local", &Config::rotary_base_local,
          "base of the rotary frequencies of layers with --window-size or --attention-chunk-size; "
          "they are not scaled")
      .above(0)
      .older_checkpoints_lack_it();
  t.field("no_rope_freq", &Config::no_rope_freq,
          "N: every N-th layer has no rotary embedding; or a list such as ([0]*3+[1])*2 with 1 for "
          "each layer without. Layers of a hybrid pattern that have no attention count too")
      .none_is_empty()
      .architecture(ArchitectureRole::none)  // the architecture has nope_layers
      .differs_silently();
  t.field("attn_temperature_scale", &Config::attn_temperature_scale,
          "in layers without rotary embedding: multiply the query at position p by 1 + this x "
          "log(1 + floor((p + 1) / --attn-temperature-floor)), as Llama 4 does")
      .at_least(0)
      .older_checkpoints_lack_it();
  t.field("attn_temperature_floor", &Config::attn_temperature_floor,
          "number of positions with the same factor of --attn-temperature-scale")
      .between(1, kMaxSize)
      .older_checkpoints_lack_it();
  t.field("attn_temperature_all_layers", &Config::attn_temperature_all_layers,
          "use --attn-temperature-scale in all layers, with floor(p / --attn-temperature-floor), "
          "as Ministral 3 does")
      .older_checkpoints_lack_it();
  t.field("rotary_percent", &Config::rotary_percent,
          "fraction of each head's channels that is rotated")
      .above(0)
      .at_most(1);
  t.field("rotary_interleaved", &Config::rotary_interleaved,
          "rotate pairs of adjacent channels instead of the two halves of each head");
  add_rope_scaling(t);
}

void add_regularisation(Table& t) {
  t.group("Dropout and initialisation").following().architecture(ArchitectureRole::training);
  t.field("hidden_dropout", &Config::hidden_dropout,
          "dropout probability of the residual branches and embeddings")
      .at_least(0)
      .below(1)
      .applies_on_resume();
  t.field("attention_dropout", &Config::attention_dropout,
          "dropout probability of the attention weights")
      .at_least(0)
      .below(1)
      .applies_on_resume();
  t.field("init_method_std", &Config::init_method_std, "standard deviation of the initial weights")
      .at_least(0);
  t.field("embedding_init_method_std", &Config::embedding_init_method_std,
          "standard deviation of the initial embeddings; default: --init-method-std")
      .at_least(0);
  t.field("init_method_xavier_uniform", &Config::init_method_xavier_uniform,
          "initialize weights with the Xavier uniform distribution");
  t.field("fp32_residual_connection", &Config::fp32_residual_connection,
          "keep the residual stream in fp32")
      .left_out_of_check("--fp32-residual-connection (float64 is used)");
  t.field("attention_softmax_in_fp32", &Config::attention_softmax_in_fp32,
          "has no effect: the attention softmax is always computed in fp32");
  t.field("apply_query_key_layer_scaling", &Config::apply_query_key_layer_scaling,
          "divide the attention scores by the layer number");
}

}  // namespace

const FieldTable<TransformerConfig>& transformer_table() {
  static const Table table = [] {
    Table t;
    add_size(t);
    add_layers(t);
    add_multipliers(t);
    add_latent_attention(t);
    add_multi_token_prediction(t);
    add_encoder(t);
    add_decoder(t);
    add_mlp(t);
    t.include(&Config::moe, moe_table());
    t.include(&Config::mamba, mamba_table());
    t.include(&Config::linear_attention, linear_attention_table());
    add_positions(t);
    add_regularisation(t);
    return t;
  }();
  return table;
}

}  // namespace megatron
