// Rules on recomputation, and the lists of all rules on memory.
#include <algorithm>

#include "megatron/config/activation_plan.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

const RecomputeConfig& recompute(S s) { return s.memory->recompute; }

bool is_full(S s) { return recompute(s).recompute_granularity == "full"; }
bool is_selective(S s) {
  const RecomputeConfig& config = recompute(s);
  return config.recompute_granularity == "selective" ||
         (config.recompute_granularity.empty() &&
          (config.recompute_activations || config.moe_layer_recompute));
}

bool has_module(S s, std::string_view module) {
  return std::ranges::find(recompute(s).recompute_modules, module) !=
         recompute(s).recompute_modules.end();
}

bool is_not_planned(S s) { return !is_planned(*s.memory); }

bool lists_layers_wrongly(S s) {
  if (recompute(s).recompute_layers.empty()) return false;
  const auto list = list_expression(recompute(s).recompute_layers);
  return !list || std::ssize(*list) != s.model->num_layers ||
         std::ranges::any_of(*list, [](std::int64_t v) { return v != 0 && v != 1; });
}

bool is_of_other_version(const std::string& module) {
  return module == "mla_up_proj" || module == "mhc" || module.starts_with("gd");
}

/// Rules on flags that memory_budget_rules() refuse with a plan.
Rules rules_without_plan() {
  return {
      needs(&Recompute::recompute_method, is(&Recompute::recompute_granularity, "full")),
      needs(&Recompute::recompute_num_layers, is(&Recompute::recompute_granularity, "full")),
      refuse({&Recompute::recompute_modules, is(&Recompute::recompute_granularity, "full")},
             {"names parts of layers, and ", &Recompute::recompute_granularity,
              " full recomputes whole layers"},
             {"leave ", &Recompute::recompute_modules, " out, or write ",
              &Recompute::recompute_granularity, " selective"}),
      rule(
          [](S s) {
            return !recompute(s).recompute_modules.empty() && !is_full(s) && !is_selective(s);
          },
          {&Recompute::recompute_modules,
           {"needs ", &Recompute::recompute_granularity, " selective"},
           {"add ", &Recompute::recompute_granularity, " selective"},
           {&Recompute::recompute_activations, &Recompute::moe_layer_recompute}}),
      rule(
          [](S s) {
            return !recompute(s).recompute_layers.empty() && !is_full(s) && !is_selective(s);
          },
          {&Recompute::recompute_layers,
           {"needs ", &Recompute::recompute_granularity},
           {"add ", &Recompute::recompute_granularity, " full or selective"},
           {&Recompute::recompute_activations, &Recompute::moe_layer_recompute}}),
      needs(&Recompute::distribute_saved_activations,
            is(&Recompute::recompute_granularity, "full")),
      refuse(
          {&Recompute::distribute_saved_activations, is(&Recompute::recompute_granularity, "full"),
           is(&Parallel::tensor_model_parallel_size, "1")},
          {"needs ", &Parallel::tensor_model_parallel_size, " above 1"},
          {"leave ", &Recompute::distribute_saved_activations, " out"}),
      refuse(
          {&Recompute::distribute_saved_activations, is(&Recompute::recompute_granularity, "full"),
           &Parallel::tensor_model_parallel_size, &Parallel::sequence_parallel},
          {"has nothing to distribute: ", &Parallel::sequence_parallel, " already keeps slices"},
          {"leave ", &Recompute::distribute_saved_activations, " out"}),
  };
}

Rules recompute_rules() {
  return {
      when(is_not_planned, rules_without_plan()),
      rule(
          [](S s) {
            return is_full(s) && s.model->num_layers > 0 &&
                   recompute(s).recompute_num_layers.value_or(1) > s.model->num_layers;
          },
          {with_value(&Recompute::recompute_num_layers),
           {"is more than the ", value(&Model::num_layers), " layers of the model"},
           "give at most the layers of a pipeline stage"}),
      refuse({&Recompute::recompute_activations, is(&Recompute::recompute_granularity, "full")},
             {"stands for ", &Recompute::recompute_granularity, " selective, not full"},
             {"leave ", &Recompute::recompute_activations, " out"}),
      rule(
          [](S s) {
            return std::ranges::any_of(recompute(s).recompute_modules, is_of_other_version);
          },
          {&Recompute::recompute_modules,
           "mla_up_proj, gdn_norm_out, gdp_in_proj, gdp_qkv and mhc are parts of layers that are "
           "not in this version",
           "choose among layernorm, mlp, moe and shared_experts"}),
      rule(lists_layers_wrongly,
           {&Recompute::recompute_layers,
            {"'", value(&Recompute::recompute_layers), "' does not list 0 or 1 for each of the ",
             value(&Model::num_layers), " layers"},
            "write one number for each layer, such as ([1]*3+[0])*2"}),
      excludes(&Recompute::num_microbatches_with_partial_activation_checkpoints,
               &Parallel::hybrid_context_parallel,
               {.why = ", which makes microbatches of different lengths",
                .fix = {"use ", &Recompute::recompute_granularity, " alone"}}),
  };
}

/// Returns what is wrong if a given plan recomputes experts that the model does not have.
std::string parts_without_experts(S s) {
  const MemoryConfig& memory = *s.memory;
  if (memory.activation_plan.empty()) return {};
  const MoeConfig& moe = s.model->moe;
  const auto layers = parse_activation_plan(memory.activation_plan);
  if (!layers) return {};  // memory_budget_rules() report it
  for (const LayerActivationPolicy& layer : *layers) {
    if (layer.moe && moe.num_experts == 0)
      return "'" + policy_text(layer) + "' recomputes moe, and the model has no experts";
    if (layer.shared_experts && moe.shared_expert_intermediate_size == 0)
      return "'" + policy_text(layer) +
             "' recomputes shared_experts, and the model has no shared experts";
  }
  return {};
}

}  // namespace

const Rules& memory_rules() {
  static const Rules rules = {recompute_rules(), offload_rules(), memory_budget_rules()};
  return rules;
}

const Rules& recomputed_module_rules() {
  static const Rules of_dense_models = {
      refuse({&Recompute::moe_layer_recompute}, "needs a model with experts",
             {"leave it out, or add ", &Moe::num_experts}),
      rule(
          [](S s) {
            return std::ranges::any_of(s.memory->offload.offload_modules,
                                       [](const std::string& module) {
                                         return module == "expert_fc1" || module == "moe_act";
                                       });
          },
          {&Offload::offload_modules,
           "expert_fc1 and moe_act need a model with experts",
           {"use mlp, or add ", &Moe::num_experts}}),
      rule(
          [](S s) {
            return !recompute(s).moe_layer_recompute &&
                   (has_module(s, "moe") || has_module(s, "moe_act") ||
                    has_module(s, "shared_experts"));
          },
          {&Recompute::recompute_modules,
           "moe, moe_act and shared_experts need a model with experts",
           {"use mlp, or add ", &Moe::num_experts},
           {&Recompute::moe_layer_recompute}}),
  };
  static const Rules rules = {
      when([](S s) { return s.model->moe.num_experts == 0; }, of_dense_models),
      rule([](S s) { return !parts_without_experts(s).empty(); },
           [](S s) {
             return Message{&Memory::activation_plan,
                            parts_without_experts(s),
                            "use mlp, or add the flags of the experts",
                            {&Moe::num_experts, &Moe::shared_expert_intermediate_size}};
           }),
      rule(
          [](S s) {
            return s.model->moe.num_experts > 0 && has_module(s, "shared_experts") &&
                   s.model->moe.shared_expert_intermediate_size == 0;
          },
          {{&Recompute::recompute_modules, " shared_experts"},
           "the model has no shared experts",
           {"add ", &Moe::shared_expert_intermediate_size, ", or leave it out"}}),
  };
  return rules;
}

}  // namespace megatron
