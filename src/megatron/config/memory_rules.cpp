// Rules on recomputation, and the lists of all rules on memory.
#include <algorithm>

#include "megatron/config/activation_plan.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using S = const Settings&;

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

UserError::Parts needs_full(const std::string& flag) {
  return {flag, "needs --recompute-granularity full",
          "add --recompute-granularity full, or leave " + flag + " out"};
}

/// With a plan, memory_budget_rules() refuse the flags that need another one.
const std::vector<Rule>& recompute_rules() {
  static const std::vector<Rule> rules = {
      {{"recompute_granularity", "recompute_method", "memory_budget", "activation_plan"},
       [](S s) {
         return !recompute(s).recompute_method.empty() && !is_full(s) && !is_planned(*s.memory);
       },
       [](S) { return needs_full("--recompute-method"); }},
      {{"recompute_granularity", "recompute_num_layers", "memory_budget", "activation_plan"},
       [](S s) {
         return recompute(s).recompute_num_layers && !is_full(s) && !is_planned(*s.memory);
       },
       [](S) { return needs_full("--recompute-num-layers"); }},
      {{"recompute_granularity", "recompute_num_layers", "num_layers"},
       [](S s) {
         return is_full(s) && s.model->num_layers > 0 &&
                recompute(s).recompute_num_layers.value_or(1) > s.model->num_layers;
       },
       [](S s) {
         return UserError::Parts{
             "--recompute-num-layers " + text_of(*recompute(s).recompute_num_layers),
             "is more than the " + text_of(s.model->num_layers) + " layers of the model",
             "give at most the layers of a pipeline stage"};
       }},
      {{"recompute_granularity", "recompute_activations", "moe_layer_recompute",
        "recompute_modules", "memory_budget", "activation_plan"},
       [](S s) {
         return !recompute(s).recompute_modules.empty() && !is_selective(s) &&
                !is_planned(*s.memory);
       },
       [](S s) {
         return is_full(s)
                    ? UserError::Parts{"--recompute-modules",
                                       "names parts of layers, and --recompute-granularity full "
                                       "recomputes whole layers",
                                       "leave --recompute-modules out, or write "
                                       "--recompute-granularity selective"}
                    : UserError::Parts{"--recompute-modules",
                                       "needs --recompute-granularity selective",
                                       "add --recompute-granularity selective"};
       }},
      {{"recompute_granularity", "recompute_activations"},
       [](S s) { return is_full(s) && recompute(s).recompute_activations; },
       [](S) {
         return UserError::Parts{"--recompute-activations",
                                 "stands for --recompute-granularity selective, not full",
                                 "leave --recompute-activations out"};
       }},
      {{"recompute_modules"},
       [](S s) {
         return std::ranges::any_of(recompute(s).recompute_modules, [](const std::string& module) {
           return module == "mla_up_proj" || module == "mhc" || module.starts_with("gd");
         });
       },
       [](S) {
         return UserError::Parts{
             "--recompute-modules",
             "mla_up_proj, gdn_norm_out, gdp_in_proj, gdp_qkv and mhc are parts "
             "of layers that are not in this version",
             "choose among layernorm, mlp, moe and shared_experts"};
       }},
      {{"recompute_layers", "num_layers"},
       [](S s) {
         if (recompute(s).recompute_layers.empty()) return false;
         const auto list = list_expression(recompute(s).recompute_layers);
         return !list || std::ssize(*list) != s.model->num_layers ||
                std::ranges::any_of(*list, [](std::int64_t v) { return v != 0 && v != 1; });
       },
       [](S s) {
         return UserError::Parts{"--recompute-layers",
                                 "'" + recompute(s).recompute_layers +
                                     "' does not list 0 or 1 for each of the " +
                                     text_of(s.model->num_layers) + " layers",
                                 "write one number for each layer, such as ([1]*3+[0])*2"};
       }},
      {{"recompute_layers", "recompute_granularity", "recompute_activations", "moe_layer_recompute",
        "memory_budget", "activation_plan"},
       [](S s) {
         return !recompute(s).recompute_layers.empty() && !is_full(s) && !is_selective(s) &&
                !is_planned(*s.memory);
       },
       [](S) {
         return UserError::Parts{"--recompute-layers", "needs --recompute-granularity",
                                 "add --recompute-granularity full or selective"};
       }},
      {{"distribute_saved_activations", "recompute_granularity", "tensor_model_parallel_size",
        "sequence_parallel", "memory_budget", "activation_plan"},
       [](S s) {
         return recompute(s).distribute_saved_activations && !is_planned(*s.memory) &&
                (!is_full(s) || s.parallel->tensor_model_parallel_size == 1 ||
                 s.parallel->sequence_parallel);
       },
       [](S s) {
         return UserError::Parts{
             "--distribute-saved-activations",
             !is_full(s) ? "needs --recompute-granularity full"
             : s.parallel->tensor_model_parallel_size == 1
                 ? "needs --tensor-model-parallel-size above 1"
                 : "has nothing to distribute: --sequence-parallel already keeps slices",
             !is_full(s) ? "add --recompute-granularity full"
                         : "leave --distribute-saved-activations out"};
       }},
      {{"num_microbatches_with_partial_activation_checkpoints", "hybrid_context_parallel"},
       [](S s) {
         return recompute(s).num_microbatches_with_partial_activation_checkpoints &&
                s.parallel->hybrid_context_parallel;
       },
       [](S) {
         return UserError::Parts{
             "--num-microbatches-with-partial-activation-checkpoints",
             "counts microbatches of one length, and --hybrid-context-parallel makes others",
             "use --recompute-granularity alone"};
       }},
  };
  return rules;
}

}  // namespace

const std::vector<Rule>& memory_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = recompute_rules();
    all.insert(all.end(), offload_rules().begin(), offload_rules().end());
    all.insert(all.end(), memory_budget_rules().begin(), memory_budget_rules().end());
    return all;
  }();
  return rules;
}

namespace {

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

const std::vector<Rule>& recomputed_module_rules() {
  static const std::vector<Rule> rules = {
      {{"moe_layer_recompute", "num_experts"},
       [](S s) { return s.model->moe.num_experts == 0 && recompute(s).moe_layer_recompute; },
       [](S) {
         return UserError::Parts{"--moe-layer-recompute", "needs a model with experts",
                                 "leave it out, or add --num-experts"};
       }},
      {{"offload_modules", "num_experts"},
       [](S s) {
         const auto& modules = s.memory->offload.offload_modules;
         return s.model->moe.num_experts == 0 &&
                std::ranges::any_of(modules, [](const std::string& module) {
                  return module == "expert_fc1" || module == "moe_act";
                });
       },
       [](S) {
         return UserError::Parts{"--offload-modules",
                                 "expert_fc1 and moe_act need a model with experts",
                                 "use mlp, or add --num-experts"};
       }},
      {{"activation_plan", "num_experts", "moe_shared_expert_intermediate_size"},
       [](S s) { return !parts_without_experts(s).empty(); },
       [](S s) {
         return UserError::Parts{"--activation-plan", parts_without_experts(s),
                                 "use mlp, or add the flags of the experts"};
       }},
      {{"recompute_modules", "moe_layer_recompute", "num_experts"},
       [](S s) {
         return s.model->moe.num_experts == 0 && !recompute(s).moe_layer_recompute &&
                (has_module(s, "moe") || has_module(s, "moe_act") ||
                 has_module(s, "shared_experts"));
       },
       [](S) {
         return UserError::Parts{"--recompute-modules",
                                 "moe, moe_act and shared_experts need a model with experts",
                                 "use mlp, or add --num-experts"};
       }},
      {{"recompute_modules", "moe_shared_expert_intermediate_size"},
       [](S s) {
         return s.model->moe.num_experts > 0 && has_module(s, "shared_experts") &&
                s.model->moe.shared_expert_intermediate_size == 0;
       },
       [](S) {
         return UserError::Parts{"--recompute-modules shared_experts",
                                 "the model has no shared experts",
                                 "add --moe-shared-expert-intermediate-size, or leave it out"};
       }},
  };
  return rules;
}

}  // namespace megatron
