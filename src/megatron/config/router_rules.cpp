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

/// Returns whether the weights of the selected experts do not depend on one another.
bool is_plain_softmax(S s) {
  return moe(s).router_score_function == RouterScore::softmax &&
         !balances(s, LoadBalancing::sinkhorn);
}

/// Returns the number of experts in the groups that a token may choose from.
std::int64_t reach(S s) { return group_topk(s) * (moe(s).num_experts / groups(s)); }

Rules topk_rules() {
  return {
      rule([](S s) { return moe(s).router_topk < 1 || moe(s).router_topk > moe(s).num_experts; },
           [](S s) {
             return Message{&Moe::router_topk,
                            {value(&Moe::router_topk), " is not between 1 and ",
                             with_value(&Moe::num_experts)},
                            {"use ", &Moe::router_topk, " ",
                             std::clamp<std::int64_t>(moe(s).router_topk, 1, moe(s).num_experts),
                             " or change ", &Moe::num_experts}};
           }),
      rule(
          [](S s) {
            return moe(s).router_topk == 1 && !moe(s).router_pre_softmax && is_plain_softmax(s);
          },
          {&Moe::router_topk,
           "1 makes the softmax over the selected expert always 1, so that the router gets no "
           "gradient",
           {"add ", &Moe::router_pre_softmax, ", or use ", &Moe::router_score_function, " sigmoid"},
           {&Moe::router_load_balancing_type}}),
      rule([](S s) { return moe(s).router_enable_expert_bias && is_plain_softmax(s); },
           {&Moe::router_enable_expert_bias,
            {"excludes ", &Moe::router_score_function, " softmax"},
            {"use ", &Moe::router_score_function, " sigmoid or sqrtsoftplus"},
            {&Moe::router_load_balancing_type}}),
      refuse({&Moe::apply_probs_on_input, without(is(&Moe::router_topk, "1"))},
             {"needs ", &Moe::router_topk, " 1, but it is ", value(&Moe::router_topk)},
             {"use ", &Moe::router_topk, " 1, or leave ", &Moe::apply_probs_on_input, " out"}),
  };
}

Rules group_rules() {
  return {
      divides(&Moe::router_num_groups, &Moe::num_experts),
      refuse({&Moe::router_group_topk, without(&Moe::router_num_groups)},
             {"needs ", &Moe::router_num_groups},
             {"add ", &Moe::router_num_groups, " N, or leave ", &Moe::router_group_topk, " out"}),
      rule([](S s) { return groups(s) > 0 && group_topk(s) > groups(s); },
           {&Moe::router_group_topk,
            {value(&Moe::router_group_topk), " is more than ", with_value(&Moe::router_num_groups)},
            {"use at most ", value(&Moe::router_num_groups)}}),
      divides(&Moe::router_group_topk, &Moe::router_topk),
      rule(
          [](S s) {
            return groups(s) > 0 && group_topk(s) > 0 && group_topk(s) <= groups(s) &&
                   moe(s).router_topk <= moe(s).num_experts &&
                   moe(s).router_topk > group_topk(s) * (moe(s).num_experts / groups(s));
          },
          {&Moe::router_topk,
           {value(&Moe::router_topk), " is more than the ", reach, " experts in ",
            with_value(&Moe::router_group_topk), " of ", value(&Moe::router_num_groups), " groups"},
           {"use at most ", reach, ", or raise ", &Moe::router_group_topk},
           {&Moe::router_num_groups}}),
  };
}

/// Returns the settings that sinkhorn routing does not have.
Words excluded_by_sinkhorn(S s) {
  const MoeConfig& m = moe(s);
  const auto is_positive = [](double coefficient) { return coefficient > 0; };
  Words text;
  const auto add = [&](bool is_given, const Words& name) {
    if (is_given) text = text + (text.empty() ? "" : ", ") + name;
  };
  add(m.router_load_balancing_type.size() > 1, "other types");
  add(std::ranges::any_of(m.aux_loss_coeff, is_positive), &Moe::aux_loss_coeff);
  add(m.expert_capacity_factor.has_value(), &Moe::expert_capacity_factor);
  add(m.router_score_function != RouterScore::softmax, &Moe::router_score_function);
  add(m.router_pre_softmax, &Moe::router_pre_softmax);
  add(m.router_topk_scaling_factor.value_or(1) != 1, &Moe::router_topk_scaling_factor);
  add(group_topk(s) > 0, &Moe::router_group_topk);
  add(m.router_enable_expert_bias, &Moe::router_enable_expert_bias);
  return text;
}

bool has_repeated_type(S s) {
  std::vector<LoadBalancing> types = moe(s).router_load_balancing_type;
  std::ranges::sort(types);
  return std::ranges::adjacent_find(types) != types.end();
}

std::int64_t num_types(S s) { return std::ssize(moe(s).router_load_balancing_type); }

Rules balance_rules() {
  return {
      rule(
          [](S s) {
            return moe(s).aux_loss_coeff.size() != moe(s).router_load_balancing_type.size();
          },
          [](S s) {
            const std::int64_t coefficients = std::ssize(moe(s).aux_loss_coeff);
            return Message{&Moe::aux_loss_coeff,
                           {"has ", coefficients, coefficients == 1 ? " value" : " values", ", ",
                            &Moe::router_load_balancing_type, " has ", num_types},
                           "give one coefficient for each type"};
          }),
      rule(has_repeated_type,
           {&Moe::router_load_balancing_type, "names a type twice", "name each type once"}),
      rule(
          [](S s) {
            return balances(s, LoadBalancing::sinkhorn) && !excluded_by_sinkhorn(s).empty();
          },
          {{&Moe::router_load_balancing_type, " sinkhorn"},
           {"excludes ", excluded_by_sinkhorn},
           {"leave out what it excludes, or use ", &Moe::router_load_balancing_type, " aux_loss"}}),
      rule(
          [](S s) {
            return moe(s).z_loss_coeff.value_or(0) < 0 ||
                   std::ranges::any_of(moe(s).aux_loss_coeff, [](double c) { return c < 0; });
          },
          {{&Moe::aux_loss_coeff, " or ", &Moe::z_loss_coeff},
           "is negative",
           "use coefficients of at least 0"}),
      rule(
          [](S s) {
            const double eps = moe(s).input_jitter_eps.value_or(0);
            return !(eps >= 0 && eps < 1);
          },
          {&Moe::input_jitter_eps,
           {value(&Moe::input_jitter_eps), " is not in [0, 1)"},
           "use a number of at least 0 and below 1"}),
  };
}

}  // namespace

const Rules& router_rules() {
  static const Rules rules = when([](S s) { return s.model->moe.num_experts > 0; },
                                  {topk_rules(), group_rules(), balance_rules()});
  return rules;
}

}  // namespace megatron
