// Declares the flags of mixture-of-experts layers: experts, router, load balancing, capacity and
// dispatch of tokens.
#include "megatron/config/list_expression.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using Config = MoeConfig;
using Table = FieldTable<Config>;

/// Declares a size that is 0 when it is "none".
FieldBuilder add_size(Table& t, std::string name, std::int64_t Config::*member, std::string help) {
  return t.field(std::move(name), member, std::move(help)).none_is("0").between(0, kMaxSize);
}

/// Declares an optional value that is unset when it is 0.
template <class V>
FieldBuilder add_optional(Table& t, std::string name, std::optional<V> Config::*member,
                          std::string help) {
  return t
      .custom(
          std::move(name), std::is_same_v<V, double> ? ValueKind::number : ValueKind::integer,
          [member](Config& config, std::span<const std::string> values) {
            read_values(config.*member, values);
            if (config.*member == V{0}) (config.*member).reset();
          },
          [member](const Config& config) { return write_values(config.*member); }, std::move(help))
      .stores(member)
      .optional()
      .at_least(0);
}

void add_layer_freq(Table& t) {
  t.custom(
       "moe_layer_freq", ValueKind::text,
       [](Config& config, std::span<const std::string> values) {
         const std::string& text = single_value(values);
         const auto list = list_expression(text);
         if (!layer_period(text) && (!list || list->empty()))
           throw FieldError{"must be a number above 0 or a list expression, got '" + text + "'",
                            "write 2 for every second layer, or [0]*1+[1]*23"};
         config.layer_freq = text;
       },
       [](const Config& config) { return write_values(config.layer_freq); },
       "N: every N-th layer has experts, beginning with the first; or a list such as "
       "[0]*1+[1]*23 with 1 for each layer that has experts")
      .stores(&Config::layer_freq)
      .architecture(ArchitectureRole::none)  // the architecture has moe_layers
      .differs_silently();
}

void add_experts(Table& t) {
  t.following().architecture(ArchitectureRole::forward);
  add_size(t, "num_experts", &Config::num_experts,
           "number of experts of each mixture-of-experts layer; none: every MLP is dense")
      .at_most(kMaxLayers)
      .alias("num-moe-experts");
  add_layer_freq(t);
  add_size(t, "moe_ffn_hidden_size", &Config::ffn_hidden_size,
           "hidden size of each expert; none: --ffn-hidden-size");
  add_size(t, "moe_shared_expert_intermediate_size", &Config::shared_expert_intermediate_size,
           "total hidden size of the shared experts, which process every token; none: there are no "
           "shared experts");
  t.field("moe_shared_expert_gate", &Config::shared_expert_gate,
          "multiply the output of the shared experts by a sigmoid gate");
  add_size(t, "moe_latent_size", &Config::latent_size,
           "project tokens to this size before the routed experts and back after them; none: "
           "experts work at the hidden size");
}

void add_router(Table& t) {
  t.following().architecture(ArchitectureRole::forward);
  t.field("moe_router_topk", &Config::router_topk, "number of experts that process each token")
      .between(1, kMaxLayers);
  t.field("moe_router_score_function", &Config::router_score_function,
          "function that turns the router's logits into scores");
  t.field("moe_router_pre_softmax", &Config::router_pre_softmax,
          "apply the softmax to all experts before the top-k selection, not to the selected ones");
  add_optional(t, "moe_router_topk_scaling_factor", &Config::router_topk_scaling_factor,
               "multiply the probabilities of the selected experts by this factor");
  add_optional(t, "moe_router_num_groups", &Config::router_num_groups,
               "number of equal groups of experts for --moe-router-group-topk")
      .at_most(kMaxLayers);
  add_optional(t, "moe_router_group_topk", &Config::router_group_topk,
               "number of groups from which the experts of a token are selected")
      .at_most(kMaxLayers);
  t.field("moe_router_enable_expert_bias", &Config::router_enable_expert_bias,
          "balance the experts with a bias on their scores that only the selection uses; with "
          "--moe-router-score-function softmax the scores are a softmax over all experts")
      .alias("moe-aux-loss-free");
  t.following().architecture(ArchitectureRole::training);
  t.field("moe_router_bias_update_rate", &Config::router_bias_update_rate,
          "change of an expert's bias after each step, toward the mean number of tokens")
      .at_least(0);
  t.field("moe_router_dtype", &Config::router_dtype,
          "data type of the router's logits; none: fp32, from operands of the model's data type")
      .none_is("none")
      .choices({"fp32", "fp64"});
  t.field("moe_router_force_load_balancing", &Config::router_force_load_balancing,
          "route tokens at random instead of by the router, to measure speed only")
      .architecture(ArchitectureRole::none);
}

void add_balancing(Table& t) {
  t.following().architecture(ArchitectureRole::training);
  t.field("moe_router_load_balancing_type", &Config::router_load_balancing_type,
          "methods that balance the experts: an auxiliary loss over a microbatch, a sequence or a "
          "global batch; sinkhorn: balanced assignment of the tokens")
      .otherwise(
          "use one of these; in place of quantile_balancing, which is not in this version, use "
          "aux_loss or --moe-router-enable-expert-bias");
  t.field("moe_aux_loss_coeff", &Config::aux_loss_coeff,
          "coefficients of the auxiliary losses, one for each --moe-router-load-balancing-type; "
          "1e-2 is a good start")
      .at_least(0);
  t.field("moe_z_loss_coeff", &Config::z_loss_coeff,
          "coefficient of the z-loss, which keeps the router's logits small; 1e-3 is a good start")
      .at_least(0);
  t.field("moe_input_jitter_eps", &Config::input_jitter_eps,
          "multiply the router's input by random numbers between 1 - X and 1 + X")
      .at_least(0)
      .below(1);
}

void add_capacity(Table& t) {
  t.following().architecture(ArchitectureRole::forward);
  t.custom(
       "moe_expert_capacity_factor", ValueKind::number,
       [](Config& config, std::span<const std::string> values) {
         read_values(config.expert_capacity_factor, values);
         if (config.expert_capacity_factor == 0)
           throw FieldError{"must be above 0, got 0", "use -1 to drop no token"};
         if (config.expert_capacity_factor < 0) config.expert_capacity_factor.reset();
       },
       [](const Config& config) { return write_values(config.expert_capacity_factor); },
       "drop the tokens of an expert beyond its equal share of a microbatch times this factor; "
       "none or negative: drop no token")
      .stores(&Config::expert_capacity_factor)
      .optional();
  t.field("moe_pad_expert_input_to_capacity", &Config::pad_expert_input_to_capacity,
          "pad the tokens of each expert to its capacity; requires --moe-expert-capacity-factor");
  t.field("moe_token_drop_policy", &Config::token_drop_policy,
          "tokens to drop beyond the capacity; probs: those with the lowest probabilities; "
          "position: those at the end of the microbatch");
  t.field("moe_apply_probs_on_input", &Config::apply_probs_on_input,
          "multiply the input of an expert by the token's probability, not the output; requires "
          "--moe-router-topk 1")
      .alias("export-moe-apply-probs-on-input");
}

void add_dispatch(Table& t) {
  t.following().architecture(ArchitectureRole::none);
  t.field("moe_token_dispatcher_type", &Config::token_dispatcher_type,
          "collective that sends tokens to the ranks of their experts");
  t.field("moe_shared_expert_overlap", &Config::shared_expert_overlap,
          "compute the shared experts while tokens are sent; requires --moe-token-dispatcher-type "
          "alltoall or flex");
  t.field(
      "moe_per_layer_logging", &Config::per_layer_logging,
      "log the auxiliary losses, the z-loss and the load of every expert for each layer; megatron "
      "report draws the loads as a heat map");
}

void add_placement(Table& t) {
  t.field("moe_expert_placement_interval", &Config::expert_placement_interval,
          "number of iterations after which experts move between the ranks of expert parallelism, "
          "so that their measured loads become even; 0: never")
      .at_least(0)
      .left_out_of_check("--moe-expert-placement-interval");
}

void add_upcycling(Table& t) {
  t.field("moe_use_upcycling", &Config::use_upcycling,
          "make the experts from the MLPs of the dense model in --load, write the result to --save "
          "and train it")
      .left_out_of_check("--moe-use-upcycling");
  t.field("moe_upcycling_granularity", &Config::upcycling_granularity,
          "number of experts into which --moe-use-upcycling divides one MLP")
      .at_least(1);
}

}  // namespace

const FieldTable<MoeConfig>& moe_table() {
  static const Table table = [] {
    Table t;
    t.group("Mixture of experts");
    add_experts(t);
    add_router(t);
    add_balancing(t);
    add_capacity(t);
    add_dispatch(t);
    add_placement(t);
    add_upcycling(t);
    return t;
  }();
  return table;
}

}  // namespace megatron
