// Rules on recomputation and offload.
#include <algorithm>

#include "megatron/config/activation_plan.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/rule.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using S = const Settings&;

const RecomputeConfig& recompute(S s) { return s.memory.recompute; }

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

const std::vector<Rule>& recompute_rules() {
  static const std::vector<Rule> rules = {
      {{"recompute_granularity", "recompute_method"},
       [](S s) { return !recompute(s).recompute_method.empty() && !is_full(s); },
       [](S) { return needs_full("--recompute-method"); }},
      {{"recompute_granularity", "recompute_num_layers"},
       [](S s) { return recompute(s).recompute_num_layers.has_value() && !is_full(s); },
       [](S) { return needs_full("--recompute-num-layers"); }},
      {{"recompute_granularity", "recompute_activations", "moe_layer_recompute",
        "recompute_modules"},
       [](S s) { return !recompute(s).recompute_modules.empty() && !is_selective(s); },
       [](S) {
         return UserError::Parts{"--recompute-modules", "needs --recompute-granularity selective",
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
         return !list || std::ssize(*list) != s.model.num_layers ||
                std::ranges::any_of(*list, [](std::int64_t v) { return v != 0 && v != 1; });
       },
       [](S s) {
         return UserError::Parts{"--recompute-layers",
                                 "'" + recompute(s).recompute_layers +
                                     "' does not list 0 or 1 for each of the " +
                                     text_of(s.model.num_layers) + " layers",
                                 "write one number for each layer, such as ([1]*3+[0])*2"};
       }},
      {{"recompute_layers", "recompute_granularity", "recompute_activations",
        "moe_layer_recompute"},
       [](S s) {
         return !recompute(s).recompute_layers.empty() && !is_full(s) && !is_selective(s);
       },
       [](S) {
         return UserError::Parts{"--recompute-layers", "needs --recompute-granularity",
                                 "add --recompute-granularity full or selective"};
       }},
      {{"distribute_saved_activations", "recompute_granularity", "tensor_model_parallel_size",
        "sequence_parallel"},
       [](S s) {
         return recompute(s).distribute_saved_activations &&
                (!is_full(s) || s.parallel.tensor_model_parallel_size == 1 ||
                 s.parallel.sequence_parallel);
       },
       [](S s) {
         return UserError::Parts{
             "--distribute-saved-activations",
             !is_full(s) ? "needs --recompute-granularity full"
             : s.parallel.tensor_model_parallel_size == 1
                 ? "needs --tensor-model-parallel-size above 1"
                 : "has nothing to distribute: --sequence-parallel already keeps slices",
             !is_full(s) ? "add --recompute-granularity full"
                         : "leave --distribute-saved-activations out"};
       }},
      {{"num_microbatches_with_partial_activation_checkpoints", "hybrid_context_parallel"},
       [](S s) {
         return recompute(s).num_microbatches_with_partial_activation_checkpoints &&
                s.parallel.hybrid_context_parallel;
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

const OffloadConfig& offload(S s) { return s.memory.offload; }

const std::vector<Rule>& offload_rules() {
  static const std::vector<Rule> rules = {
      {{"offload_modules", "fine_grained_activation_offloading"},
       [](S s) {
         return offload(s).fine_grained_activation_offloading == offload(s).offload_modules.empty();
       },
       [](S s) {
         return offload(s).offload_modules.empty()
                    ? UserError::Parts{"--fine-grained-activation-offloading",
                                       "names no part of a layer",
                                       "add --offload-modules, for example core_attn"}
                    : UserError::Parts{"--offload-modules",
                                       "needs --fine-grained-activation-offloading",
                                       "add --fine-grained-activation-offloading"};
       }},
      {{"cpu_offloading", "cpu_offloading_num_layers", "fine_grained_activation_offloading"},
       [](S s) {
         return offload(s).fine_grained_activation_offloading &&
                (offload(s).cpu_offloading || offload(s).cpu_offloading_num_layers > 0);
       },
       [](S) {
         return UserError::Parts{"--fine-grained-activation-offloading",
                                 "offloads parts of layers, and --cpu-offloading whole layers",
                                 "choose one of them"};
       }},
      {{"cpu_offloading_weights", "cpu_offloading_activations", "cpu_offloading",
        "cpu_offloading_num_layers"},
       [](S s) {
         return (offload(s).cpu_offloading_weights || !offload(s).cpu_offloading_activations) &&
                !offload(s).cpu_offloading && offload(s).cpu_offloading_num_layers == 0;
       },
       [](S s) {
         return UserError::Parts{offload(s).cpu_offloading_weights
                                     ? "--cpu-offloading-weights"
                                     : "--no-cpu-offloading-activations",
                                 "says what --cpu-offloading moves, which is not given",
                                 "add --cpu-offloading or --cpu-offloading-num-layers"};
       }},
      {{"cpu_offloading_weights", "cpu_offloading_activations", "cpu_offloading"},
       [](S s) {
         return !offload(s).cpu_offloading_weights && !offload(s).cpu_offloading_activations &&
                offload(s).cpu_offloading;
       },
       [](S) {
         return UserError::Parts{"--no-cpu-offloading-activations",
                                 "leaves --cpu-offloading nothing to offload",
                                 "add --cpu-offloading-weights, or leave both out"};
       }},
      {{"cpu_offloading_weights", "bf16", "fp16"},
       [](S s) {
         return offload(s).cpu_offloading_weights && !s.training.bf16 && !s.training.fp16;
       },
       [](S) {
         return UserError::Parts{
             "--cpu-offloading-weights",
             "is for weights of 16 bits: those of 32 bits are the optimizer's main weights",
             "add --bf16, or leave --cpu-offloading-weights out"};
       }},
      {{"cpu_offloading_weights", "use_distributed_optimizer", "zero_stage",
        "data_parallel_sharding_strategy", "use_megatron_fsdp"},
       [](S s) {
         const int stage = zero_stage(s.parallel);
         return offload(s).cpu_offloading_weights && (stage == 1 || stage == 2);
       },
       [](S) {
         return UserError::Parts{
             "--cpu-offloading-weights",
             "with a distributed optimizer needs sharded weights: otherwise every update gathers "
             "all weights in memory",
             "add --zero-stage 3, or leave --use-distributed-optimizer out"};
       }},
      {{"offload_folder", "cpu_offloading", "cpu_offloading_num_layers",
        "fine_grained_activation_offloading", "optimizer_cpu_offload"},
       [](S s) {
         return !offload(s).offload_folder.empty() && !offload(s).cpu_offloading &&
                offload(s).cpu_offloading_num_layers == 0 &&
                !offload(s).fine_grained_activation_offloading &&
                !offload(s).optimizer_cpu_offload && !s.memory.has_budget() &&
                s.memory.activation_plan.find("offload") == std::string::npos;
       },
       [](S) {
         return UserError::Parts{"--offload-folder", "has no effect: nothing is offloaded",
                                 "add --cpu-offloading or --optimizer-cpu-offload"};
       }},
  };
  return rules;
}

const std::vector<Rule>& budget_rules() {
  static const std::vector<Rule> rules = {
      {{"memory_budget"},
       [](S s) {
         const std::string& budget = s.memory.memory_budget;
         return !budget.empty() && budget != "auto" && !byte_count(budget);
       },
       [](S s) {
         return UserError::Parts{"--memory-budget",
                                 "'" + s.memory.memory_budget + "' is not a size of memory",
                                 "write 20GB, 512MiB or auto"};
       }},
      {{"memory_budget", "recompute_granularity", "recompute_activations", "moe_layer_recompute",
        "cpu_offloading", "cpu_offloading_num_layers", "cpu_offloading_activations",
        "fine_grained_activation_offloading", "activation_plan"},
       [](S s) {
         const bool offloads =
             offload(s).cpu_offloading || offload(s).cpu_offloading_num_layers > 0;
         const bool chooses = is_full(s) || is_selective(s) ||
                              (offloads && offload(s).cpu_offloading_activations) ||
                              offload(s).fine_grained_activation_offloading;
         return chooses && (s.memory.has_budget() || !s.memory.activation_plan.empty());
       },
       [](S s) {
         return UserError::Parts{
             s.memory.has_budget() ? "--memory-budget" : "--activation-plan",
             "says what layers recompute and offload, and other flags say it too",
             "leave --recompute-granularity, --recompute-activations and --cpu-offloading out"};
       }},
      {{"memory_budget", "micro_batch_size", "global_batch_size"},
       [](S s) { return s.memory.chooses_micro_batch_size && s.training.global_batch_size == 0; },
       [](S) {
         return UserError::Parts{"--memory-budget",
                                 "chooses the micro-batch size only for a given global batch size",
                                 "add --global-batch-size or --micro-batch-size"};
       }},
      {{"memory_budget", "micro_batch_size", "rampup_batch_size", "step_batch_size_schedule"},
       [](S s) {
         return s.memory.chooses_micro_batch_size && (!s.training.rampup_batch_size.empty() ||
                                                      !s.training.step_batch_size_schedule.empty());
       },
       [](S) {
         return UserError::Parts{
             "--memory-budget",
             "chooses the micro-batch size only for batches of one size, and this run's grow",
             "add --micro-batch-size"};
       }},
      {{"activation_plan", "num_layers"},
       [](S s) {
         if (s.memory.activation_plan.empty()) return false;
         const auto layers = parse_activation_plan(s.memory.activation_plan);
         return !layers || (s.model.num_layers > 0 && std::ssize(*layers) != s.model.num_layers);
       },
       [](S s) {
         const auto layers = parse_activation_plan(s.memory.activation_plan);
         return UserError::Parts{
             "--activation-plan",
             "'" + s.memory.activation_plan + "' " +
                 (layers ? "is for " + text_of(std::ssize(*layers)) + " layers, the model has " +
                               text_of(s.model.num_layers)
                         : "is not a list of policies"),
             "write one for each layer, such as full*4,layernorm+mlp*20,none"};
       }},
  };
  return rules;
}

}  // namespace

const std::vector<Rule>& memory_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = recompute_rules();
    all.insert(all.end(), offload_rules().begin(), offload_rules().end());
    all.insert(all.end(), budget_rules().begin(), budget_rules().end());
    return all;
  }();
  return rules;
}

const std::vector<Rule>& recomputed_module_rules() {
  static const std::vector<Rule> rules = {
      {{"recompute_modules", "moe_layer_recompute", "num_experts"},
       [](S s) {
         return s.model.moe.num_experts == 0 && (has_module(s, "moe") || has_module(s, "moe_act") ||
                                                 has_module(s, "shared_experts"));
       },
       [](S) {
         return UserError::Parts{"--recompute-modules",
                                 "moe, moe_act and shared_experts need a model with experts",
                                 "use mlp, or add --num-experts"};
       }},
      {{"recompute_modules", "moe_shared_expert_intermediate_size"},
       [](S s) {
         return s.model.moe.num_experts > 0 && has_module(s, "shared_experts") &&
                s.model.moe.shared_expert_intermediate_size == 0;
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
