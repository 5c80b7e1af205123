// Rules on the router of a mixture of experts: top-k, groups and load balancing.
#include <algorithm>

#include "megatron/config/moe_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using namespace rules;

const MoeConfig& moe(S s) { return s.model->moe; }
std::int64_t groups(S s) { return moe(s).router_num_groups.value_or(0); }
std::int64_t group_topk(S s) { return moe(s).router_group_topk.value_or(0); }

bool balances(S s, LoadBalancing type) {
  const auto& types = moe(s).router_load_balancing_type;
  return std::ranges::find(types, type) != types.end();
}

/// Holds if the weights of the selected experts do not depend on one another.
Condition plain_softmax() {
  const auto is_plain = [](S s) {
    return moe(s).router_score_function == RouterScore::softmax &&
           !balances(s, LoadBalancing::sinkhorn);
  };
  return {is_plain,
          {&Moe::router_score_function, " softmax"},
          {&Moe::router_score_function, &Moe::router_load_balancing_type}};
}

/// Returns the number of experts in the groups that a token may choose from.
std::int64_t reach(S s) { return group_topk(s) * (moe(s).num_experts / groups(s)); }

std::int64_t possible_topk(S s) {
  return std::clamp<std::int64_t>(moe(s).router_topk, 1, moe(s).num_experts);
}

Rules topk_rules() {
  return {
      rule([](S s) { return moe(s).router_topk < 1 || moe(s).router_topk > moe(s).num_experts; },
           {&Moe::router_topk,
            {value(&Moe::router_topk), " is not between 1 and ", with_value(&Moe::num_experts)},
            {"use ", &Moe::router_topk, " ", possible_topk, " or change ", &Moe::num_experts}}),
      tunes({&Moe::router_bias_update_rate}, &Moe::router_enable_expert_bias),
      tunes({&Moe::router_pre_softmax}, is(&Moe::router_score_function, "softmax")),
      needs(&Moe::apply_probs_on_input, is(&Moe::router_topk, "1"),
            {.why = {", but it is ", value(&Moe::router_topk)}}),
  };
}

Rules group_rules() {
  const auto exceeds_reach = [](S s) {
    return groups(s) > 0 && group_topk(s) > 0 && group_topk(s) <= groups(s) &&
           moe(s).router_topk <= moe(s).num_experts &&
           moe(s).router_topk > group_topk(s) * (moe(s).num_experts / groups(s));
  };
  return {
      divides(&Moe::router_num_groups, &Moe::num_experts),
      needs(&Moe::router_group_topk, &Moe::router_num_groups),
      tunes({&Moe::router_num_groups}, &Moe::router_group_topk),
      when(&Moe::router_num_groups, at_most(&Moe::router_num_groups, &Moe::router_group_topk)),
      when([](S s) { return moe(s).router_group_score_topk == 0; },
           divides(&Moe::router_group_topk, &Moe::router_topk)),
      rule(exceeds_reach, {&Moe::router_topk,
                           {value(&Moe::router_topk), " is more than the ", reach, " experts in ",
                            with_value(&Moe::router_group_topk), " of ",
                            value(&Moe::router_num_groups), " groups"},
                           {"use at most ", reach, ", or raise ", &Moe::router_group_topk},
                           {&Moe::router_num_groups}}),
  };
}

std::int64_t num_types(S s) { return std::ssize(moe(s).router_load_balancing_type); }
std::string num_coefficients(S s) {
  const std::size_t count = moe(s).aux_loss_coeff.size();
  return std::to_string(count) + (count == 1 ? " value" : " values");
}

/// The settings that Megatron-LM refuses together with sinkhorn routing.
Condition excluded_by_sinkhorn() {
  const auto has_several_types = [](S s) { return num_types(s) > 1; };
  const auto has_loss = [](S s) {
    const auto is_positive = [](double coefficient) { return coefficient > 0; };
    return std::ranges::any_of(moe(s).aux_loss_coeff, is_positive);
  };
  return any({{has_several_types, "other types", {}},
              {has_loss, &Moe::aux_loss_coeff},
              &Moe::expert_capacity_factor,
              &Moe::router_enable_expert_bias});
}

bool has_repeated_type(S s) {
  std::vector<LoadBalancing> types = moe(s).router_load_balancing_type;
  std::ranges::sort(types);
  return std::ranges::adjacent_find(types) != types.end();
}

bool has_negative_coefficient(S s) {
  return moe(s).z_loss_coeff.value_or(0) < 0 ||
         std::ranges::any_of(moe(s).aux_loss_coeff, [](double c) { return c < 0; });
}

bool has_wrong_jitter(S s) {
  const double eps = moe(s).input_jitter_eps.value_or(0);
  return !(eps >= 0 && eps < 1);
}

Rules balance_rules() {
  const auto counts_differ = [](S s) {
    return moe(s).aux_loss_coeff.size() != moe(s).router_load_balancing_type.size();
  };
  const Condition sinkhorn = {[](S s) { return balances(s, LoadBalancing::sinkhorn); },
                              {&Moe::router_load_balancing_type, " sinkhorn"},
                              {}};
  return {
      rule(counts_differ,
           {&Moe::aux_loss_coeff,
            {"has ", num_coefficients, ", ", &Moe::router_load_balancing_type, " has ", num_types},
            "give one coefficient for each type"}),
      rule(has_repeated_type,
           {&Moe::router_load_balancing_type, "names a type twice", "name each type once"}),
      excludes(sinkhorn, excluded_by_sinkhorn(),
               {.fix = {"leave out what it excludes, or use ", &Moe::router_load_balancing_type,
                        " aux_loss"}}),
      idle({&Moe::router_score_function, &Moe::router_pre_softmax, &Moe::router_topk_scaling_factor,
            &Moe::router_group_topk},
           sinkhorn),
      idle({&Moe::aux_loss_coeff}, is(&Moe::router_load_balancing_type, "none")),
      rule(has_negative_coefficient, {{&Moe::aux_loss_coeff, " or ", &Moe::z_loss_coeff},
                                      "is negative",
                                      "use coefficients of at least 0"}),
      rule(has_wrong_jitter, {&Moe::input_jitter_eps,
                              {value(&Moe::input_jitter_eps), " is not in [0, 1)"},
                              "use a number of at least 0 and below 1"}),
  };
}

}  // namespace

const Rules& new_router_rules() {
  static const Rules rules = refuse(
      {is(&Moe::router_topk, "1"), without(&Moe::router_pre_softmax), plain_softmax(),
       &Moe::num_experts},
      "makes the softmax over the selected expert always 1, so that the router gets no gradient",
      {"add ", &Moe::router_pre_softmax, ", or use ", &Moe::router_score_function, " sigmoid"});
  return rules;
}

const Rules& router_rules() {
  static const Rules rules =
      when(&Moe::num_experts, {topk_rules(), group_rules(), balance_rules()});
  return rules;
}

}  // namespace megatron
