// Rules on what waits in another memory: activations, weights and the optimizer's state.
#include "megatron/config/activation_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using S = const Settings&;

const OffloadConfig& offload(S s) { return s.memory->offload; }

/// Returns whether a flag, a plan or a budget offloads layers.
bool may_offload_layers(S s) { return offloads_layers(*s.memory) || s.memory->has_budget(); }

/// Returns whether a flag, a plan or a budget offloads something.
bool offloads(S s) { return may_offload_layers(s) || offload(s).optimizer_cpu_offload; }

}  // namespace

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
        "cpu_offloading_num_layers", "recompute_granularity", "memory_budget", "activation_plan"},
       [](S s) {
         return (offload(s).cpu_offloading_weights || !offload(s).cpu_offloading_activations) &&
                !offload(s).cpu_offloading && offload(s).cpu_offloading_num_layers == 0;
       },
       [](S s) {
         return UserError::Parts{
             offload(s).cpu_offloading_weights ? "--cpu-offloading-weights"
                                               : "--no-cpu-offloading-activations",
             "says what --cpu-offloading moves, which is not given",
             is_planned(*s.memory)
                 ? "add --cpu-offloading --no-cpu-offloading-activations, because the plan "
                   "says what becomes of activations"
                 : "add --cpu-offloading or --cpu-offloading-num-layers"};
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
         return offload(s).cpu_offloading_weights && !s.training->bf16 && !s.training->fp16;
       },
       [](S) {
         return UserError::Parts{
             "--cpu-offloading-weights",
             "is for weights of 16 bits: those of 32 bits are the optimizer's main weights",
             "add --bf16, or leave --cpu-offloading-weights out"};
       }},
      {{"cpu_offloading_weights", "use_distributed_optimizer", "zero_stage",
        "data_parallel_sharding_strategy", "use_megatron_fsdp", "use_torch_fsdp2",
        "torch_fsdp2_reshard_after_forward"},
       [](S s) {
         const int stage = zero_stage(*s.parallel);
         return offload(s).cpu_offloading_weights && (stage == 1 || stage == 2);
       },
       [](S s) {
         return UserError::Parts{
             "--cpu-offloading-weights",
             "with " + stage_flag(*s.parallel) +
                 " needs sharded weights: otherwise every update gathers all weights in memory",
             "use --zero-stage 3, or leave " + stage_flag(*s.parallel) + " out"};
       }},
      {{"offload_folder", "cpu_offloading", "cpu_offloading_num_layers",
        "fine_grained_activation_offloading", "optimizer_cpu_offload", "offload_modules",
        "recompute_granularity", "memory_budget", "activation_plan"},
       [](S s) {
         // --offload-modules has a message of its own.
         return !offload(s).offload_folder.empty() && offload(s).offload_modules.empty() &&
                !offloads(s);
       },
       [](S s) {
         return UserError::Parts{
             "--offload-folder", "has no effect: nothing is offloaded",
             s.memory->activation_plan.empty()
                 ? "add --cpu-offloading, --optimizer-cpu-offload or --memory-budget, or leave "
                   "--offload-folder out"
                 : "add offload to a layer of --activation-plan, or leave --offload-folder out"};
       }},
      {{"min_offloaded_tensor_size", "cpu_offloading", "cpu_offloading_num_layers",
        "fine_grained_activation_offloading", "memory_budget", "recompute_granularity",
        "activation_plan"},
       [](S s) {
         const bool is_given =
             offload(s).min_offloaded_tensor_size != OffloadConfig{}.min_offloaded_tensor_size;
         return is_given && !may_offload_layers(s);
       },
       [](S s) {
         std::string fix = "add --cpu-offloading or --fine-grained-activation-offloading";
         if (!s.memory->activation_plan.empty())
           fix = "add offload to a layer of --activation-plan";
         return UserError::Parts{"--min-offloaded-tensor-size",
                                 "has no effect: no activations are offloaded",
                                 fix + ", or leave --min-offloaded-tensor-size out"};
       }},
      {{"optimizer_cpu_offload", "optimizer_offload_fraction"},
       [](S s) {
         return offload(s).optimizer_cpu_offload && offload(s).optimizer_offload_fraction == 0;
       },
       [](S) {
         return UserError::Parts{"--optimizer-offload-fraction 0",
                                 "leaves --optimizer-cpu-offload nothing to offload",
                                 "give a share above 0, or leave both out"};
       }},
      {{"fine_grained_activation_offloading", "activation_offload_fraction"},
       [](S s) {
         return offload(s).fine_grained_activation_offloading &&
                offload(s).activation_offload_fraction == 0;
       },
       [](S) {
         return UserError::Parts{"--activation-offload-fraction 0",
                                 "leaves --fine-grained-activation-offloading nothing to offload",
                                 "give a share above 0, or leave both out"};
       }},
      {{"fine_grained_activation_offloading", "activation_offload_fraction"},
       [](S s) {
         return !offload(s).fine_grained_activation_offloading &&
                offload(s).activation_offload_fraction != 1;
       },
       [](S) {
         return UserError::Parts{"--activation-offload-fraction",
                                 "needs --fine-grained-activation-offloading",
                                 "add --fine-grained-activation-offloading, or leave it out"};
       }},
      {{"cpu_offloading_num_layers", "num_layers"},
       [](S s) {
         return s.model->num_layers > 0 &&
                offload(s).cpu_offloading_num_layers > s.model->num_layers;
       },
       [](S s) {
         return UserError::Parts{
             "--cpu-offloading-num-layers " + text_of(offload(s).cpu_offloading_num_layers),
             "is more than the " + text_of(s.model->num_layers) + " layers of the model",
             "give at most the layers of a pipeline stage, or --cpu-offloading for all"};
       }},
  };
  return rules;
}

}  // namespace megatron
