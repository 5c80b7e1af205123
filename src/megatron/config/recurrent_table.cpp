// Declares the flags of recurrent layers: Mamba-2 and linear attention.
#include "megatron/config/list_expression.h"
#include "megatron/config/recurrent_config.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

template <class T>
FieldBuilder add_size(FieldTable<T>& t, const char* name, std::int64_t T::*member, const char* help,
                      std::int64_t least = 1, std::int64_t most = kMaxSize) {
  return t.field(name, member, help).between(least, most).older_checkpoints_lack_it();
}

}  // namespace

const FieldTable<MambaConfig>& mamba_table() {
  using Config = MambaConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Mamba").following().architecture(ArchitectureRole::forward);
    add_size(t, "mamba_state_dim", &Config::state_dim, "rows of the state of each Mamba-2 head");
    add_size(t, "mamba_head_dim", &Config::head_dim, "channels of each Mamba-2 head");
    add_size(t, "mamba_num_groups", &Config::num_groups,
             "number of groups of Mamba-2 heads that share B and C");
    add_size(t, "mamba_num_heads", &Config::num_heads,
             "number of Mamba-2 heads; default: 2 x hidden size / --mamba-head-dim", 0)
        .none_is("0");
    add_size(t, "mamba_conv_kernel_dim", &Config::conv_kernel_dim,
             "positions that the convolution of a Mamba-2 layer reads", 1, kMostConvTaps);
    add_size(t, "mamba_norm_groups", &Config::norm_groups,
             "number of groups of channels that the gated norm of a Mamba-2 layer normalizes each "
             "on its own; default: --mamba-num-groups",
             0)
        .none_is("0");
    t.field("mamba_norm_epsilon", &Config::norm_epsilon,
            "epsilon of the gated norm of a Mamba-2 layer")
        .above(0)
        .older_checkpoints_lack_it();
    const auto add_ratio = [&](const char* name, double Config::*member, const char* help) {
      t.field(name, member, help)
          .none_is("0")
          .at_least(0)
          .at_most(1)
          .architecture(ArchitectureRole::none)  // the architecture has the pattern
          .differs_silently();
    };
    add_ratio("hybrid_attention_ratio", &Config::attention_ratio,
              "share of the layers of `pretrain hybrid` with attention, without "
              "--hybrid-layer-pattern");
    add_ratio("hybrid_mlp_ratio", &Config::mlp_ratio,
              "share of the layers of `pretrain hybrid` that are MLPs, without "
              "--hybrid-layer-pattern");
    return t;
  }();
  return table;
}

const FieldTable<LinearAttentionConfig>& linear_attention_table() {
  using Config = LinearAttentionConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Linear attention").following().architecture(ArchitectureRole::forward);
    t.field("experimental_attention_variant", &Config::variant,
            "gated_delta_net: layers that --linear-attention-freq names have a gated delta net in "
            "place of attention, as in Qwen3-Next")
        .otherwise("gdn2 and dsa are not in this version")
        .older_checkpoints_lack_it();
    t.field("linear_attention_freq", &Config::freq,
            "with --experimental-attention-variant: N: every N-th layer has full attention; or a "
            "list such as ([1]*3+[0])*2 with 1 for each layer with linear attention; default: all "
            "have linear attention")
        .none_is_empty()
        .architecture(ArchitectureRole::none)  // the architecture has linear_layers
        .differs_silently();
    add_size(t, "linear_conv_kernel_dim", &Config::conv_kernel_dim,
             "positions that the convolution of a gated delta net reads", 1, kMostConvTaps);
    add_size(t, "linear_key_head_dim", &Config::key_head_dim,
             "channels of each query and key of a gated delta net");
    add_size(t, "linear_value_head_dim", &Config::value_head_dim,
             "channels of each value of a gated delta net");
    add_size(t, "linear_num_key_heads", &Config::num_key_heads,
             "number of heads of queries and keys of a gated delta net");
    add_size(t, "linear_num_value_heads", &Config::num_value_heads,
             "number of heads of values of a gated delta net, each with a state");
    t.field("linear_norm_1p", &Config::norm_1p,
            "do not add 1 to the weight of the gated norm of a gated delta net with "
            "--apply-layernorm-1p: as in Qwen3-Next")
        .older_checkpoints_lack_it();
    t.field("linear_norm_epsilon", &Config::norm_epsilon,
            "epsilon of the gated norm of a gated delta net; default: --norm-epsilon")
        .above(0)
        .older_checkpoints_lack_it();
    t.field("linear_allow_neg_eigval", &Config::allow_neg_eigval,
            "double the gate of what enters the state of a gated delta net, whose eigenvalues then "
            "may be negative: as in OLMo Hybrid")
        .older_checkpoints_lack_it();
    return t;
  }();
  return table;
}

}  // namespace megatron
