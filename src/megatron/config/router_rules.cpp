// Rules on the router of a mixture of experts: top-k, groups and load balancing.
#include <algorithm>

#include "megatron/config/moe_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using S = const Settings&;
using Parts = UserError::Parts;

const MoeConfig& moe(S s) { return s.model->moe; }
bool has_experts(S s) { return s.model->moe.num_experts > 0; }
std::int64_t groups(S s) { return moe(s).router_num_groups.value_or(0); }
std::int64_t group_topk(S s) { return moe(s).router_group_topk.value_or(0); }

bool balances(S s, LoadBalancing type) {
  const auto& types = moe(s).router_load_balancing_type;
  return std::ranges::find(types, type) != types.end();
}

const std::vector<Rule>& topk_rules() {
  static const std::vector<Rule> rules = {
      {{"moe_router_topk", "num_experts"},
       [](S s) {
         return has_experts(s) &&
                (moe(s).router_topk < 1 || moe(s).router_topk > moe(s).num_experts);
       },
       [](S s) {
         return Parts{
             "--moe-router-topk",
             text_of(moe(s).router_topk) + " is not between 1 and --num-experts " +
                 text_of(moe(s).num_experts),
             "use --moe-router-topk " +
                 text_of(std::clamp<std::int64_t>(moe(s).router_topk, 1, moe(s).num_experts)) +
                 " or change --num-experts"};
       }},
      {{"moe_router_topk", "moe_router_score_function", "moe_router_pre_softmax",
        "moe_router_load_balancing_type", "num_experts"},
       [](S s) {
         return has_experts(s) && moe(s).router_topk == 1 && !moe(s).router_pre_softmax &&
                moe(s).router_score_function == RouterScore::softmax &&
                !balances(s, LoadBalancing::sinkhorn);
       },
       [](S) {
         return Parts{"--moe-router-topk",
                      "1 makes the softmax over the selected expert always 1, so that the router "
                      "gets no gradient",
                      "add --moe-router-pre-softmax, or use --moe-router-score-function sigmoid"};
       }},
      {{"moe_router_enable_expert_bias", "moe_router_score_function",
        "moe_router_load_balancing_type", "num_experts"},
       [](S s) {
         return has_experts(s) && moe(s).router_enable_expert_bias &&
                moe(s).router_score_function == RouterScore::softmax &&
                !balances(s, LoadBalancing::sinkhorn);
       },
       [](S) {
         return Parts{"--moe-router-enable-expert-bias",
                      "excludes --moe-router-score-function softmax",
                      "use --moe-router-score-function sigmoid or sqrtsoftplus"};
       }},
      {{"moe_apply_probs_on_input", "moe_router_topk", "num_experts"},
       [](S s) { return has_experts(s) && moe(s).apply_probs_on_input && moe(s).router_topk != 1; },
       [](S s) {
         return Parts{"--moe-apply-probs-on-input",
                      "needs --moe-router-topk 1, but it is " + text_of(moe(s).router_topk),
                      "use --moe-router-topk 1, or leave --moe-apply-probs-on-input out"};
       }},
  };
  return rules;
}

const std::vector<Rule>& group_rules() {
  static const std::vector<Rule> rules = {
      {{"moe_router_num_groups", "num_experts"},
       [](S s) { return has_experts(s) && groups(s) > 0 && moe(s).num_experts % groups(s) != 0; },
       [](S s) {
         return indivisible("--num-experts", moe(s).num_experts, "--moe-router-num-groups",
                            groups(s));
       }},
      {{"moe_router_group_topk", "moe_router_num_groups", "num_experts"},
       [](S s) { return has_experts(s) && group_topk(s) > 0 && groups(s) == 0; },
       [](S) {
         return Parts{"--moe-router-group-topk", "needs --moe-router-num-groups",
                      "add --moe-router-num-groups N, or leave --moe-router-group-topk out"};
       }},
      {{"moe_router_group_topk", "moe_router_num_groups", "num_experts"},
       [](S s) { return has_experts(s) && groups(s) > 0 && group_topk(s) > groups(s); },
       [](S s) {
         return Parts{
             "--moe-router-group-topk",
             text_of(group_topk(s)) + " is more than --moe-router-num-groups " + text_of(groups(s)),
             "use at most " + text_of(groups(s))};
       }},
      {{"moe_router_topk", "moe_router_group_topk", "num_experts"},
       [](S s) {
         return has_experts(s) && group_topk(s) > 0 && moe(s).router_topk % group_topk(s) != 0;
       },
       [](S s) {
         return indivisible("--moe-router-topk", moe(s).router_topk, "--moe-router-group-topk",
                            group_topk(s));
       }},
      {{"moe_router_topk", "moe_router_group_topk", "moe_router_num_groups", "num_experts"},
       [](S s) {
         return has_experts(s) && groups(s) > 0 && group_topk(s) > 0 &&
                group_topk(s) <= groups(s) && moe(s).router_topk <= moe(s).num_experts &&
                moe(s).router_topk > group_topk(s) * (moe(s).num_experts / groups(s));
       },
       [](S s) {
         const std::int64_t reach = group_topk(s) * (moe(s).num_experts / groups(s));
         return Parts{"--moe-router-topk",
                      text_of(moe(s).router_topk) + " is more than the " + text_of(reach) +
                          " experts in --moe-router-group-topk " + text_of(group_topk(s)) + " of " +
                          text_of(groups(s)) + " groups",
                      "use at most " + text_of(reach) + ", or raise --moe-router-group-topk"};
       }},
  };
  return rules;
}

/// Returns the settings that sinkhorn routing does not have.
std::string excluded_by_sinkhorn(S s) {
  const MoeConfig& m = moe(s);
  const auto is_positive = [](double coefficient) { return coefficient > 0; };
  std::string text;
  const auto add = [&](bool is_given, const char* name) {
    if (is_given) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add(m.router_load_balancing_type.size() > 1, "other types");
  add(std::ranges::any_of(m.aux_loss_coeff, is_positive), "--moe-aux-loss-coeff");
  add(m.expert_capacity_factor.has_value(), "--moe-expert-capacity-factor");
  add(m.router_score_function != RouterScore::softmax, "--moe-router-score-function");
  add(m.router_pre_softmax, "--moe-router-pre-softmax");
  add(m.router_topk_scaling_factor.value_or(1) != 1, "--moe-router-topk-scaling-factor");
  add(group_topk(s) > 0, "--moe-router-group-topk");
  add(m.router_enable_expert_bias, "--moe-router-enable-expert-bias");
  return text;
}

bool has_repeated_type(S s) {
  std::vector<LoadBalancing> types = moe(s).router_load_balancing_type;
  std::ranges::sort(types);
  return std::ranges::adjacent_find(types) != types.end();
}

const std::vector<Rule>& balance_rules() {
  static const std::vector<Rule> rules = {
      {{"moe_router_load_balancing_type", "moe_aux_loss_coeff", "num_experts"},
       [](S s) {
         return has_experts(s) &&
                moe(s).aux_loss_coeff.size() != moe(s).router_load_balancing_type.size();
       },
       [](S s) {
         const auto types = std::int64_t(moe(s).router_load_balancing_type.size()),
                    coefficients = std::int64_t(moe(s).aux_loss_coeff.size());
         return Parts{"--moe-aux-loss-coeff",
                      "has " + text_of(coefficients) + (coefficients == 1 ? " value" : " values") +
                          ", --moe-router-load-balancing-type has " + text_of(types),
                      "give one coefficient for each type"};
       }},
      {{"moe_router_load_balancing_type", "num_experts"},
       [](S s) { return has_experts(s) && has_repeated_type(s); },
       [](S) {
         return Parts{"--moe-router-load-balancing-type", "names a type twice",
                      "name each type once"};
       }},
      {{"moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_expert_capacity_factor",
        "moe_router_score_function", "moe_router_pre_softmax", "moe_router_topk_scaling_factor",
        "moe_router_group_topk", "moe_router_enable_expert_bias", "num_experts"},
       [](S s) {
         return has_experts(s) && balances(s, LoadBalancing::sinkhorn) &&
                !excluded_by_sinkhorn(s).empty();
       },
       [](S s) {
         return Parts{"--moe-router-load-balancing-type sinkhorn",
                      "excludes " + excluded_by_sinkhorn(s),
                      "leave out what it excludes, or use --moe-router-load-balancing-type "
                      "aux_loss"};
       }},
      {{"moe_aux_loss_coeff", "moe_z_loss_coeff", "num_experts"},
       [](S s) {
         return has_experts(s) &&
                (moe(s).z_loss_coeff.value_or(0) < 0 ||
                 std::ranges::any_of(moe(s).aux_loss_coeff, [](double c) { return c < 0; }));
       },
       [](S) {
         return Parts{"--moe-aux-loss-coeff or --moe-z-loss-coeff", "is negative",
                      "use coefficients of at least 0"};
       }},
      {{"moe_input_jitter_eps", "num_experts"},
       [](S s) {
         const double eps = moe(s).input_jitter_eps.value_or(0);
         return has_experts(s) && !(eps >= 0 && eps < 1);
       },
       [](S s) {
         return Parts{"--moe-input-jitter-eps",
                      detail::concatenate(*moe(s).input_jitter_eps, " is not in [0, 1)"),
                      "use a number of at least 0 and below 1"};
       }},
  };
  return rules;
}

}  // namespace

const std::vector<Rule>& router_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all;
    for (const auto* list : {&topk_rules(), &group_rules(), &balance_rules()})
      all.insert(all.end(), list->begin(), list->end());
    return all;
  }();
  return rules;
}

}  // namespace megatron
