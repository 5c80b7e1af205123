// Rules on a memory budget and on the plan that it chooses.
#include "megatron/config/activation_plan.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

/// Returns the given flags, by which people say what layers recompute and offload.
std::vector<Words> flags_that_plan(S s) {
  const std::string& granularity = s.memory->recompute.recompute_granularity;
  const OffloadConfig& offload = s.memory->offload;
  std::vector<Words> flags;
  if (granularity == "full" || granularity == "selective")
    flags.push_back(with_value(&Recompute::recompute_granularity));
  for (const Setting& setting : std::initializer_list<Setting>{
           &Recompute::recompute_activations, &Recompute::moe_layer_recompute,
           &Recompute::recompute_modules, &Recompute::recompute_layers,
           &Recompute::recompute_method, &Recompute::recompute_num_layers,
           &Recompute::distribute_saved_activations, &Offload::fine_grained_activation_offloading})
    if (setting.is_given(s)) flags.push_back(setting);
  if (offload.cpu_offloading_activations) {
    // --cpu-offloading-num-layers implies --cpu-offloading.
    if (offload.cpu_offloading_num_layers > 0)
      flags.push_back(&Offload::cpu_offloading_num_layers);
    else if (offload.cpu_offloading)
      flags.push_back(&Offload::cpu_offloading);
  }
  return flags;
}

/// Returns "--a", "--a and --b" or "--a, --b and --c".
Words list_text(const std::vector<Words>& items) {
  Words text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text = text + (i == 0 ? "" : i + 1 < items.size() ? ", " : " and ") + items[i];
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

const Rules& memory_budget_rules() {
  static const Rules rules = {
      rule(
          [](S s) {
            const std::string& budget = s.memory->memory_budget;
            return !budget.empty() && !is_automatic_budget(budget) && !byte_count(budget);
          },
          {&Memory::memory_budget,
           {"'", value(&Memory::memory_budget), "' is not a size of memory"},
           "write 20GB, 512MiB or auto"}),
      rule([](S s) { return is_planned(*s.memory) && !flags_that_plan(s).empty(); },
           [](S s) {
             const std::vector<Words> given = flags_that_plan(s);
             return Message{
                 s.memory->has_budget() ? &Memory::memory_budget : Words(&Memory::activation_plan),
                 Words("says what layers recompute and offload, and so ") +
                     (given.size() > 1 ? "do " : "does ") + list_text(given),
                 "leave " + list_text(given) + " out"};
           }),
      rule([](S s) { return s.memory->has_budget() && !s.memory->activation_plan.empty(); },
           {&Memory::activation_plan,
            {"is what ", &Memory::memory_budget, " chooses, which would replace it"},
            "give one of the two"}),
      rule(
          [](S s) {
            return s.memory->chooses_micro_batch_size && s.training->global_batch_size == 0;
          },
          {&Memory::memory_budget,
           "chooses the micro-batch size only for a given global batch size",
           {"add ", &Training::global_batch_size, " or ", &Training::micro_batch_size}}),
      rule(
          [](S s) {
            return s.memory->chooses_micro_batch_size &&
                   (!s.training->rampup_batch_size.empty() ||
                    !s.training->step_batch_size_schedule.empty());
          },
          {&Memory::memory_budget,
           "chooses the micro-batch size only for batches of one size, and this run's grow",
           {"add ", &Training::micro_batch_size}}),
      rule([](S s) { return !wrong_activation_plan(s).empty(); },
           [](S s) {
             return Message{&Memory::activation_plan,
                            wrong_activation_plan(s),
                            "write one for each layer, such as full*4,layernorm+mlp*20,none",
                            {&Model::num_layers}};
           }),
  };
  return rules;
}

}  // namespace megatron
