// Rules on recomputation and on a memory budget, and the lists of all rules on memory.
#include <algorithm>

#include "megatron/base/words.h"
#include "megatron/config/activation_plan.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

const RecomputeConfig& recompute(S s) { return s.memory->recompute; }

Condition full() { return is(&Recompute::recompute_granularity, "full"); }

/// Holds if a granularity is given or implied. Its words ask for the granularity `name`.
Condition recomputing(const char* name) {
  const auto recomputes = [](S s) {
    const RecomputeConfig& config = recompute(s);
    return !config.recompute_granularity.empty() || config.recompute_activations ||
           config.moe_layer_recompute;
  };
  return {recomputes,
          {&Recompute::recompute_granularity, name},
          {&Recompute::recompute_activations, &Recompute::moe_layer_recompute}};
}

bool has_module(S s, std::string_view module) {
  return std::ranges::find(recompute(s).recompute_modules, module) !=
         recompute(s).recompute_modules.end();
}

bool lists_layers_wrongly(S s) {
  const auto list = list_expression(recompute(s).recompute_layers);
  return !list || std::ssize(*list) != s.model->num_layers ||
         std::ranges::any_of(*list, [](std::int64_t v) { return v != 0 && v != 1; });
}

bool has_modules_of_other_version(S s) {
  return std::ranges::any_of(recompute(s).recompute_modules, [](const std::string& module) {
    return module == "mhc" || module.starts_with("gd");
  });
}

/// Rules on flags that plan_rules() refuse with a plan.
Rules rules_without_plan() {
  const Condition parts =
      any({is(&Recompute::recompute_granularity, "selective"), &Recompute::recompute_activations});
  return {
      excludes(&Recompute::recompute_method, parts),
      excludes(&Recompute::recompute_num_layers, parts),
      needs(&Recompute::recompute_modules, recomputing(" selective")),
      needs(&Recompute::recompute_layers, recomputing(" full or selective")),
      needs(&Recompute::distribute_saved_activations, full()),
      excludes(&Recompute::recompute_modules, full(),
               {.why = ", which recomputes whole layers",
                .fix = {"leave ", &Recompute::recompute_modules, " out, or write ",
                        &Recompute::recompute_granularity, " selective"}}),
      refuse({&Recompute::distribute_saved_activations, full(),
              is(&Parallel::tensor_model_parallel_size, "1")},
             {"needs ", &Parallel::tensor_model_parallel_size, " above 1"},
             {"leave ", &Recompute::distribute_saved_activations, " out"}),
      when(full(),
           when(&Parallel::tensor_model_parallel_size,
                excludes(&Recompute::distribute_saved_activations, &Parallel::sequence_parallel,
                         {.why = ", which keeps slices",
                          .fix = {"leave ", &Recompute::distribute_saved_activations, " out"}}))),
  };
}

Rules recompute_rules() {
  return {
      when([](S s) { return !is_planned(*s.memory); }, rules_without_plan()),
      refuse({&Recompute::recompute_modules, has_modules_of_other_version},
             "gdn_norm_out, gdp_in_proj, gdp_qkv and mhc are parts of layers that are "
             "not in this version",
             "choose among layernorm, mlp, moe and shared_experts"),
      excludes(&Recompute::num_microbatches_with_partial_activation_checkpoints,
               &Parallel::hybrid_context_parallel,
               {.why = ", which makes microbatches of different lengths",
                .fix = {"use ", &Recompute::recompute_granularity, " alone"}}),
  };
}

bool has_budget(S s) { return s.memory->has_budget(); }
Setting plan_flag(S s) {
  return has_budget(s) ? &Memory::memory_budget : Setting(&Memory::activation_plan);
}

bool offloads_activations_of_layers(S s) {
  const OffloadConfig& offload = s.memory->offload;
  return offload.cpu_offloading_activations &&
         (offload.cpu_offloading || offload.cpu_offloading_num_layers > 0);
}
/// Returns the flag that is given: --cpu-offloading-num-layers implies --cpu-offloading.
Setting layer_offload_flag(S s) {
  return s.memory->offload.cpu_offloading_num_layers > 0 ? &Offload::cpu_offloading_num_layers
                                                         : Setting(&Offload::cpu_offloading);
}

/// The flags by which people say what layers recompute and offload.
Condition flags_that_plan() {
  return any({full(),
              is(&Recompute::recompute_granularity, "selective"),
              &Recompute::recompute_activations,
              &Recompute::moe_layer_recompute,
              &Recompute::recompute_modules,
              &Recompute::recompute_layers,
              &Recompute::recompute_method,
              &Recompute::recompute_num_layers,
              &Recompute::distribute_saved_activations,
              &Offload::fine_grained_activation_offloading,
              {offloads_activations_of_layers, layer_offload_flag}});
}

bool is_no_size(S s) {
  return !is_automatic_budget(s.memory->memory_budget) && !byte_count(s.memory->memory_budget);
}

/// Returns what is wrong with --activation-plan, or nothing.
std::string wrong_activation_plan(S s) {
  const std::string& text = s.memory->activation_plan;
  if (text.empty()) return {};
  const auto layers = parse_activation_plan(text);
  if (!layers) return activation_plan_mistake(text);
  const std::int64_t num_layers = s.model->num_all_layers();
  if (s.model->num_layers == 0 || std::ssize(*layers) == num_layers) return {};
  return "'" + text + "' is for " + text_of(std::ssize(*layers)) + " layers, the model has " +
         text_of(num_layers);
}

/// Rules on --memory-budget and --activation-plan.
Rules plan_rules() {
  const Condition other_flags = flags_that_plan();
  const Condition chosen_size = {[](S s) { return s.memory->chooses_micro_batch_size; },
                                 &Memory::memory_budget};
  return {
      refuse({&Memory::memory_budget, is_no_size},
             {"'", value(&Memory::memory_budget), "' is not a size of memory"},
             "write 20GB, 512MiB or auto"),
      refuse({{[](S s) { return is_planned(*s.memory); }, plan_flag}, other_flags},
             "says what layers recompute and offload, and excludes " + other_flags.words,
             "leave " + other_flags.words + " out"),
      refuse({&Memory::activation_plan, has_budget},
             {"is what ", &Memory::memory_budget, " chooses, which would replace it"},
             "give one of the two"),
      refuse({chosen_size, without(&Training::global_batch_size)},
             "chooses the micro-batch size only for a given global batch size",
             {"add ", &Training::global_batch_size, " or ", &Training::micro_batch_size}),
      refuse(
          {chosen_size, any({&Training::rampup_batch_size, &Training::step_batch_size_schedule})},
          "chooses the micro-batch size only for batches of one size, and this run's grow",
          {"add ", &Training::micro_batch_size}),
  };
}

/// Returns what is wrong if a given plan recomputes what the model does not have.
std::string absent_parts(S s) {
  const MemoryConfig& memory = *s.memory;
  if (memory.activation_plan.empty()) return {};
  const MoeConfig& moe = s.model->moe;
  const auto layers = parse_activation_plan(memory.activation_plan);
  if (!layers) return {};  // plan_rules() report it
  for (const LayerPolicy& layer : *layers) {
    if (layer.recomputed.contains(LayerNode::mla_up_proj) && !s.model->multi_latent_attention)
      return "'" + policy_text(layer) +
             "' recomputes mla_up_proj, and the model has no multi-latent attention";
    if (layer.recomputed.contains(LayerNode::moe) && moe.num_experts == 0)
      return "'" + policy_text(layer) + "' recomputes moe, and the model has no experts";
    if (layer.recomputed.contains(LayerNode::shared_experts) &&
        moe.shared_expert_intermediate_size == 0)
      return "'" + policy_text(layer) +
             "' recomputes shared_experts, and the model has no shared experts";
  }
  return {};
}

bool has_modules_of_experts(S s) {
  return has_module(s, "moe") || has_module(s, "moe_act") || has_module(s, "shared_experts");
}

/// Returns those of --offload-modules that are parts of experts.
std::string offloaded_parts_of_experts(S s) {
  std::vector<std::string> parts = s.memory->offload.offload_modules;
  std::erase_if(parts, [](const auto& part) { return part != "expert_fc1" && part != "moe_act"; });
  return joined_text(parts, " ");
}

}  // namespace

const Rules& memory_rules() {
  static const Rules rules = {recompute_rules(), offload_rules(), plan_rules()};
  return rules;
}

const Rules& recomputed_module_rules() {
  static const Rules of_layers = {
      when(full(), at_most(&Model::num_layers, &Recompute::recompute_num_layers,
                           {.fix = "give at most the layers of a pipeline stage"})),
      refuse({&Recompute::recompute_layers, lists_layers_wrongly},
             {"'", value(&Recompute::recompute_layers), "' does not list 0 or 1 for each of the ",
              value(&Model::num_layers), " layers"},
             "write one number for each layer, such as ([1]*3+[0])*2"),
      rule([](S s) { return !wrong_activation_plan(s).empty(); },
           {&Memory::activation_plan,
            wrong_activation_plan,
            "write one for each layer, such as full*4,layernorm+mlp*20,none",
            {&Model::num_layers, &Model::mtp_num_layers}}),
      at_most(&Model::num_layers, &Offload::cpu_offloading_num_layers,
              {.fix = {"give at most the layers of a pipeline stage, or ", &Offload::cpu_offloading,
                       " for all"}}),
  };
  static const Words use_mlp = {"use mlp, or add ", &Moe::num_experts};
  const auto offloads_parts_of_experts_alone = [](S s) {
    return offloaded_parts_of_experts(s) == joined_text(s.memory->offload.offload_modules, " ");
  };
  static const Rules of_dense_models = {
      refuse({&Recompute::moe_layer_recompute}, "needs a model with experts",
             {"leave it out, or add ", &Moe::num_experts}),
      note({{[](S s) { return !offloaded_parts_of_experts(s).empty(); },
             {&Offload::offload_modules, " ", offloaded_parts_of_experts}}},
           "without effect: the model has no experts"),
      note({&Offload::fine_grained_activation_offloading, offloads_parts_of_experts_alone},
           {"without effect: ", &Offload::offload_modules, " names parts of experts alone"}),
      refuse({&Recompute::recompute_modules, has_modules_of_experts,
              without(&Recompute::moe_layer_recompute)},
             "moe, moe_act and shared_experts need a model with experts", use_mlp),
  };
  static const Rules rules = {
      when(&Model::num_layers, of_layers),
      when(without(&Moe::num_experts), of_dense_models),
      rule([](S s) { return !absent_parts(s).empty(); },
           {&Memory::activation_plan,
            absent_parts,
            "use mlp, or add the flags of what it names",
            {&Moe::num_experts, &Moe::shared_expert_intermediate_size,
             &Model::multi_latent_attention}}),
      refuse({{[](S s) { return has_module(s, "mla_up_proj"); },
               {&Recompute::recompute_modules, " mla_up_proj"},
               {}},
              without(&Model::multi_latent_attention)},
             "is a part of multi-latent attention",
             {"add ", &Model::multi_latent_attention, ", or leave it out"}),
      refuse({{[](S s) { return has_module(s, "shared_experts"); },
               {&Recompute::recompute_modules, " shared_experts"},
               {}},
              &Moe::num_experts,
              without(&Moe::shared_expert_intermediate_size)},
             "the model has no shared experts",
             {"add ", &Moe::shared_expert_intermediate_size, ", or leave it out"}),
  };
  return rules;
}

}  // namespace megatron
