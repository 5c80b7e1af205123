// Rules on a memory budget and on the plan that it chooses.
#include "megatron/config/activation_plan.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using S = const Settings&;

/// Returns the given flags, by which people say what layers recompute and offload.
std::vector<std::string> flags_that_plan(S s) {
  const RecomputeConfig& recompute = s.memory->recompute;
  const OffloadConfig& offload = s.memory->offload;
  const bool has_granularity =
      recompute.recompute_granularity == "full" || recompute.recompute_granularity == "selective";
  std::vector<std::string> flags;
  const auto add = [&](bool is_given, const std::string& flag) {
    if (is_given) flags.push_back(flag);
  };
  add(has_granularity, "--recompute-granularity " + recompute.recompute_granularity);
  add(recompute.recompute_activations, "--recompute-activations");
  add(recompute.moe_layer_recompute, "--moe-layer-recompute");
  add(!recompute.recompute_modules.empty(), "--recompute-modules");
  add(!recompute.recompute_layers.empty(), "--recompute-layers");
  add(!recompute.recompute_method.empty(), "--recompute-method");
  add(recompute.recompute_num_layers.has_value(), "--recompute-num-layers");
  add(recompute.distribute_saved_activations, "--distribute-saved-activations");
  add(offload.fine_grained_activation_offloading, "--fine-grained-activation-offloading");
  if (offload.cpu_offloading_activations) {
    const bool counts = offload.cpu_offloading_num_layers > 0;  // implies the other
    add(counts || offload.cpu_offloading,
        counts ? "--cpu-offloading-num-layers" : "--cpu-offloading");
  }
  return flags;
}

/// Returns "--a", "--a and --b" or "--a, --b and --c".
std::string list_text(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 < items.size() ? ", " : " and ") + items[i];
  return text;
}

/// Returns what is wrong with --activation-plan, or nothing.
std::string wrong_activation_plan(S s) {
  const std::string& text = s.memory->activation_plan;
  if (text.empty()) return {};
  const auto layers = parse_activation_plan(text);
  if (!layers) return activation_plan_mistake(text);
  if (s.model->num_layers == 0 || std::ssize(*layers) == s.model->num_layers) return {};
  return "'" + text + "' is for " + text_of(std::ssize(*layers)) + " layers, the model has " +
         text_of(s.model->num_layers);
}

}  // namespace

const std::vector<Rule>& memory_budget_rules() {
  static const std::vector<Rule> rules = {
      {{"memory_budget"},
       [](S s) {
         const std::string& budget = s.memory->memory_budget;
         return !budget.empty() && !is_automatic_budget(budget) && !byte_count(budget);
       },
       [](S s) {
         return UserError::Parts{"--memory-budget",
                                 "'" + s.memory->memory_budget + "' is not a size of memory",
                                 "write 20GB, 512MiB or auto"};
       }},
      {{"memory_budget", "recompute_granularity", "recompute_activations", "moe_layer_recompute",
        "cpu_offloading", "cpu_offloading_num_layers", "cpu_offloading_activations",
        "fine_grained_activation_offloading", "recompute_layers", "recompute_method",
        "recompute_num_layers", "recompute_modules", "distribute_saved_activations",
        "activation_plan"},
       [](S s) { return is_planned(*s.memory) && !flags_that_plan(s).empty(); },
       [](S s) {
         const std::vector<std::string> given = flags_that_plan(s);
         const std::string flags = list_text(given);
         return UserError::Parts{s.memory->has_budget() ? "--memory-budget" : "--activation-plan",
                                 "says what layers recompute and offload, and so " +
                                     std::string(given.size() > 1 ? "do " : "does ") + flags,
                                 "leave " + flags + " out"};
       }},
      {{"memory_budget", "activation_plan", "recompute_granularity"},
       [](S s) { return s.memory->has_budget() && !s.memory->activation_plan.empty(); },
       [](S) {
         return UserError::Parts{"--activation-plan",
                                 "is what --memory-budget chooses, which would replace it",
                                 "give one of the two"};
       }},
      {{"memory_budget", "micro_batch_size", "global_batch_size"},
       [](S s) { return s.memory->chooses_micro_batch_size && s.training->global_batch_size == 0; },
       [](S) {
         return UserError::Parts{"--memory-budget",
                                 "chooses the micro-batch size only for a given global batch size",
                                 "add --global-batch-size or --micro-batch-size"};
       }},
      {{"memory_budget", "micro_batch_size", "rampup_batch_size", "step_batch_size_schedule"},
       [](S s) {
         return s.memory->chooses_micro_batch_size &&
                (!s.training->rampup_batch_size.empty() ||
                 !s.training->step_batch_size_schedule.empty());
       },
       [](S) {
         return UserError::Parts{
             "--memory-budget",
             "chooses the micro-batch size only for batches of one size, and this run's grow",
             "add --micro-batch-size"};
       }},
      {{"activation_plan", "num_layers"},
       [](S s) { return !wrong_activation_plan(s).empty(); },
       [](S s) {
         return UserError::Parts{"--activation-plan", wrong_activation_plan(s),
                                 "write one for each layer, such as full*4,layernorm+mlp*20,none"};
       }},
  };
  return rules;
}

}  // namespace megatron
