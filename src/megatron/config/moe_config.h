// The mixture-of-experts layers of a transformer as a plain struct. Members are Megatron-LM's
// settings without the prefix moe_.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/transformer_enums.h"

namespace megatron {

/// The router, the experts and the dispatch of tokens. Without experts every layer has a dense MLP.
struct MoeConfig {
  std::int64_t num_experts = 0;
  /// N: every N-th layer has experts, beginning with the first; or a list expression with 1 =
  /// experts.
  std::string layer_freq = "1";
  std::int64_t ffn_hidden_size = 0;  ///< width of one expert; 0: that of the dense MLP
  /// Total width of the shared experts, which all tokens take; 0: no shared expert.
  std::int64_t shared_expert_intermediate_size = 0;
  bool shared_expert_gate = false;  ///< multiply the shared experts by a sigmoid gate
  std::int64_t latent_size = 0;     ///< experts work on projections of this width; 0: hidden size

  std::int64_t router_topk = 2;
  RouterScore router_score_function = RouterScore::softmax;
  bool router_pre_softmax = false;  ///< softmax over all experts, before top-k
  std::optional<double> router_topk_scaling_factor;
  std::optional<std::int64_t> router_num_groups, router_group_topk;
  /// Number of experts whose scores add up to that of their group; 0: router_topk /
  /// router_group_topk.
  std::int64_t router_group_score_topk = 0;
  bool router_enable_expert_bias = false;
  double router_bias_update_rate = 1e-3;
  RouterDtype router_dtype = RouterDtype::none;
  bool router_force_load_balancing = false;
  std::vector<LoadBalancing> router_load_balancing_type = {LoadBalancing::aux_loss};
  /// One coefficient for each type.
  std::vector<double> aux_loss_coeff = {0};
  std::optional<double> z_loss_coeff, input_jitter_eps;

  std::optional<double> expert_capacity_factor;  ///< none: no token is dropped
  bool pad_expert_input_to_capacity = false;
  TokenDropPolicy token_drop_policy = TokenDropPolicy::probs;
  bool apply_probs_on_input = false;

  TokenDispatcherType token_dispatcher_type = TokenDispatcherType::allgather;
  bool shared_expert_overlap = false;  ///< compute shared experts while tokens are exchanged
  bool per_layer_logging = false;

  /// Every so many iterations experts move between ranks to even out their loads; 0: never.
  std::int64_t expert_placement_interval = 0;
  bool use_upcycling = false;              ///< make the experts from the dense model of --load
  std::int64_t upcycling_granularity = 1;  ///< number of experts made from one dense MLP

  /// Returns the coefficient of one type of auxiliary loss; 0 when it is off.
  double coefficient(LoadBalancing type) const {
    for (std::size_t i = 0; i < router_load_balancing_type.size() && i < aux_loss_coeff.size(); ++i)
      if (router_load_balancing_type[i] == type) return aux_loss_coeff[i];
    return 0;
  }
};

}  // namespace megatron
