// The flags of the architecture: size, attention, norms, MLP, positions, regularisation and
// initialisation.
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

using Config = TransformerConfig;
using Table = FieldTable<Config>;

void add_size(Table& t) {
  t.group("Model");
  t.field("num_layers", &Config::num_layers, "transformer layers")
      .at_least(1)
      .alias("encoder-num-layers")
      .at_most(kMaxLayers);
  t.field("hidden_size", &Config::hidden_size, "width of the model").at_least(1).at_most(kMaxSize);
  t.field("num_attention_heads", &Config::num_attention_heads, "query heads")
      .at_least(1)
      .at_most(kMaxSize);
  t.field(
       "ffn_hidden_size", &Config::ffn_hidden_size,
       "width of the MLP; 0: 4 x hidden size, with --swiglu and --geglu 8/3 x in multiples of 64")
      .at_least(0)
      .at_most(kMaxSize);
  t.field("kv_channels", &Config::kv_channels, "width of one head; 0: hidden size / heads")
      .at_least(0)
      .at_most(kMaxSize);
  t.field("group_query_attention", &Config::group_query_attention,
          "share keys and values between groups of query heads");
  t.field("num_query_groups", &Config::num_query_groups,
          "groups of keys and values, with --group-query-attention")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("max_position_embeddings", &Config::max_position_embeddings,
          "longest sequence of learned positions; 0: the sequence length")
      .at_least(0)
      .at_most(kMaxSize);
  t.field("untie_embeddings_and_output_weights", &Config::untie_embeddings_and_output_weights,
          "give the output layer weights of its own");
}

void add_layers(Table& t) {
  t.group("Layers");
  t.field("normalization", &Config::normalization, "kind of norm");
  t.field("norm_placement", &Config::norm_placement,
          "norm before each block, or after its residual addition");
  t.field("norm_epsilon", &Config::norm_epsilon, "epsilon of the norms").above(0);
  t.field("apply_layernorm_1p", &Config::apply_layernorm_1p,
          "norm weights are stored as weight - 1");
  t.field("apply_residual_connection_post_layernorm",
          &Config::apply_residual_connection_post_layernorm,
          "take the residual from the norm's output");
  t.field("qk_layernorm", &Config::qk_layernorm, "norm on the queries and keys of each head");
  t.field("add_bias_linear", &Config::add_bias_linear, "leave the biases of the linear layers out")
      .off_flag("disable-bias-linear");
  t.field("add_qkv_bias", &Config::add_qkv_bias,
          "bias on queries, keys and values, also with --disable-bias-linear");
  t.field("window_size", &Config::window_size,
          "sliding attention window \"left,right\"; -1: unlimited");
  t.field("window_attn_skip_freq", &Config::window_attn_skip_freq,
          "N: every N-th layer attends to all; or a list such as ([1]*3+[0])*2, 1 = windowed");
}

void add_mlp(Table& t) {
  t.group("MLP");
  t.field("activation", &Config::activation, "activation of the MLP");
  t.field("gated_linear_unit", &Config::gated_linear_unit,
          "multiply the activation with a second projection");
}

void add_rope_scaling(Table& t) {
  t.field("rope_scaling_type", &Config::rope_scaling_type,
          "how rotary positions stretch beyond the length of pretraining");
  t.field("rope_scaling_factor", &Config::rope_scaling_factor, "factor of the scaling").above(0);
  t.field("rope_low_freq_factor", &Config::rope_low_freq_factor,
          "Llama 3's scaling: low frequency factor")
      .above(0);
  t.field("rope_high_freq_factor", &Config::rope_high_freq_factor,
          "Llama 3's scaling: high frequency factor")
      .above(0);
  t.field("rope_original_max_position_embeddings", &Config::rope_original_max_position_embeddings,
          "length of pretraining; 4096 with yarn unless given")
      .at_least(1)
      .alias("yarn-original-max-position-embeddings")
      .at_most(kMaxSize);
  t.field("yarn_beta_fast", &Config::yarn_beta_fast,
          "YaRN: rotations above which a dimension is not stretched")
      .above(0);
  t.field("yarn_beta_slow", &Config::yarn_beta_slow,
          "YaRN: rotations below which a dimension is stretched in full")
      .above(0);
  t.field("yarn_mscale", &Config::yarn_mscale, "YaRN: scale of the attention")
      .at_least(0)
      .alias("mscale");
  t.field("yarn_mscale_all_dim", &Config::yarn_mscale_all_dim, "YaRN: scale of all dimensions")
      .at_least(0)
      .alias("mscale-all-dim");
  t.field("yarn_correction_range_round_to_int", &Config::yarn_correction_range_round_to_int,
          "YaRN: keep the ends of the ramp fractional");
  t.field("yarn_attention_factor", &Config::yarn_attention_factor,
          "YaRN: Hugging Face's attention_factor")
      .above(0);
}

void add_positions(Table& t) {
  t.group("Positions");
  t.field("position_embedding_type", &Config::position_embedding_type,
          "how a token knows its place");
  t.field("rotary_base", &Config::rotary_base, "base of the rotary frequencies").above(0);
  t.field("rotary_percent", &Config::rotary_percent, "part of each head that is rotated")
      .above(0)
      .at_most(1);
  t.field("rotary_interleaved", &Config::rotary_interleaved,
          "rotate even and odd channels instead of the two halves");
  add_rope_scaling(t);
}

void add_regularisation(Table& t) {
  t.group("Dropout and initialisation");
  t.field("hidden_dropout", &Config::hidden_dropout,
          "dropout on the residual branches and embeddings")
      .at_least(0)
      .below(1);
  t.field("attention_dropout", &Config::attention_dropout, "dropout on the attention probabilities")
      .at_least(0)
      .below(1);
  t.field("init_method_std", &Config::init_method_std, "standard deviation of the initial weights")
      .at_least(0);
  t.field("embedding_init_method_std", &Config::embedding_init_method_std, "that of the embeddings")
      .at_least(0);
  t.field("init_method_xavier_uniform", &Config::init_method_xavier_uniform,
          "Xavier-uniform initial weights");
  t.field("fp32_residual_connection", &Config::fp32_residual_connection,
          "keep the residual stream in fp32");
  t.field("attention_softmax_in_fp32", &Config::attention_softmax_in_fp32,
          "without effect: attention is always computed in fp32 inside");
  t.field("apply_query_key_layer_scaling", &Config::apply_query_key_layer_scaling,
          "divide the attention scores by the layer's number");
}

}  // namespace

const FieldTable<TransformerConfig>& transformer_table() {
  static const Table table = [] {
    Table t;
    add_size(t);
    add_layers(t);
    add_mlp(t);
    add_positions(t);
    add_regularisation(t);
    return t;
  }();
  return table;
}

}  // namespace megatron
