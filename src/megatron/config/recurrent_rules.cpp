// Rules on recurrent layers: Mamba-2 and gated delta nets.
#include "megatron/config/parallel_config.h"
#include "megatron/config/recurrent_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;
using Linear = LinearAttentionConfig;
using Mamba = MambaConfig;

Condition has_mixers(MixerKind kind, const Words& words) {
  return {[kind](S s) { return has_mixer(*s.model, kind); }, words};
}

bool divide_each_other(std::int64_t a, std::int64_t b) { return a % b == 0 || b % a == 0; }

/// The rules of heads in groups, over tp and over cp, whose ranks exchange rows for heads. Ranks
/// share a group, or each has some.
Rules head_rules(const Setting& groups, const Setting& heads) {
  const auto number = [](const Setting& setting, S s) {
    return static_cast<std::int64_t>(setting.number(s).value_or(1));
  };
  const auto tp = [](S s) { return s.parallel->tensor_model_parallel_size; };
  const auto ranks = [tp](S s) { return tp(s) * s.parallel->context_parallel_size; };
  const auto divided = [](const auto& breaks) -> Condition {
    return {[=](S s) { return s.parallel->context_parallel_size > 1 && breaks(s); }, {}};
  };
  return {
      divides(groups, heads),
      divides(&Parallel::tensor_model_parallel_size, heads),
      rule([=](S s) { return !divide_each_other(number(groups, s), tp(s)); },
           {groups,
            {value(groups), " and ", with_value(&Parallel::tensor_model_parallel_size),
             ": neither divides the other"},
            {"change one of them"}}),
      rule(divided([=](S s) { return number(heads, s) % ranks(s) != 0; }),
           {heads,
            {value(heads), " cannot be divided by ",
             with_value(&Parallel::tensor_model_parallel_size), " times ",
             with_value(&Parallel::context_parallel_size)},
            {"change one of them"}}),
      rule(divided([=](S s) { return !divide_each_other(number(groups, s), ranks(s)); }),
           {groups,
            {value(groups), " and ", with_value(&Parallel::tensor_model_parallel_size), " times ",
             with_value(&Parallel::context_parallel_size), ": neither divides the other"},
            {"change one of them"}}),
  };
}

bool has_no_heads(S s) { return s.model->mamba.num_heads == 0; }  // see resolve()

/// Norms of groups that neither fill whole ranks nor whole groups of ranks.
bool has_uneven_norms(S s) {
  const Mamba& mamba = s.model->mamba;
  const std::int64_t groups = mamba.num_norm_groups(), tp = s.parallel->tensor_model_parallel_size;
  return mamba.num_heads * mamba.head_dim % groups != 0 || !divide_each_other(groups, tp);
}

/// Notes every field of a table without the layers that it describes.
template <class T>
Rules idle_without(const FieldTable<T>& table, const Condition& layers) {
  Rules rules = {};
  for (const Field& field : table.set().fields)
    if (field.architecture == ArchitectureRole::forward)
      rules.add(tunes({Setting(field.member)}, layers));
  return rules;
}

}  // namespace

const Rules& recurrent_rules() {
  static const Condition mamba =
      has_mixers(MixerKind::mamba, {&Model::hybrid_layer_pattern, " with M"});
  static const Condition delta = has_mixers(
      MixerKind::gated_delta_net,
      {&Linear::variant, " gated_delta_net or ", &Model::hybrid_layer_pattern, " with G"});
  static const Wording whole = {
      .why = ", whose heads the ranks of every document would have to divide",
      .fix = {"use ", &Parallel::context_parallel_size}};
  static const Rules rules = {
      when(mamba, {head_rules(&Mamba::num_groups, &Mamba::num_heads),
                   rule(has_no_heads, {&Mamba::head_dim,
                                       {value(&Mamba::head_dim), " does not divide twice ",
                                        with_value(&Model::hidden_size)},
                                       {"change it, or give ", &Mamba::num_heads}}),
                   rule(has_uneven_norms,
                        {&Mamba::norm_groups,
                         {"do not divide the channels of all heads over ",
                          with_value(&Parallel::tensor_model_parallel_size)},
                         {"use a number that divides both, or a multiple of the ranks"}})}),
      when(delta, head_rules(&Linear::num_key_heads, &Linear::num_value_heads)),
      excludes(&Parallel::hybrid_context_parallel, mamba, whole),
      excludes(&Parallel::hybrid_context_parallel, delta, whole),
      excludes(&Linear::variant, &Model::hybrid_layer_pattern,
               {.fix = {"write G in ", &Model::hybrid_layer_pattern}}),
      rule([](S s) { return s.model->mamba.attention_ratio + s.model->mamba.mlp_ratio > 1; },
           {&Mamba::attention_ratio,
            {"and ", &Mamba::mlp_ratio, " add up to more than 1"},
            "lower one of them"}),
      idle_without(mamba_table(), mamba),
      idle_without(linear_attention_table(), delta),
  };
  return rules;
}

}  // namespace megatron
