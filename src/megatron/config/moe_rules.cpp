// Rules on the mixture of experts: layers, shared experts, capacity and expert parallelism. Rules
// on the router are in router_rules.cpp.
#include <algorithm>

#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

Rules dense_rules() {
  const Wording why = {.why = ", but every MLP of the model is dense"};
  const std::vector<Condition> refused = {&Moe::ffn_hidden_size, &Moe::latent_size,
                                          &Moe::expert_placement_interval, &Moe::use_upcycling};
  Rules rules = {
      needs(any(refused), &Moe::num_experts, why),
      needs(valued(&Parallel::expert_model_parallel_size), &Moe::num_experts, why),
      tunes({&Parallel::expert_tensor_parallel_size}, &Moe::num_experts),
  };
  for (const Field& field : moe_table().set().fields)
    rules.add(when(without(any(refused)), tunes({Setting(field.member)}, &Moe::num_experts)));
  return rules;
}

Rules expert_parallel_rules() {
  return {
      divides(&Parallel::expert_model_parallel_size, &Moe::num_experts),
      divides(&Parallel::expert_tensor_parallel_size, &Moe::ffn_hidden_size),
      when(without(&Parallel::expert_tensor_parallel_size),
           divides(&Parallel::tensor_model_parallel_size, &Moe::ffn_hidden_size,
                   {.why = {", by which experts are divided without ",
                            &Parallel::expert_tensor_parallel_size}})),
      divides(&Parallel::tensor_model_parallel_size, &Moe::shared_expert_intermediate_size),
  };
}

std::int64_t num_listed_layers(S s) { return std::ssize(expert_layers(*s.model)); }

bool lists_other_numbers(S s) {
  return std::ranges::any_of(expert_layers(*s.model),
                             [](std::int64_t layer) { return layer != 0 && layer != 1; });
}

bool lists_no_experts(S s) {
  return std::ranges::all_of(expert_layers(*s.model),
                             [](std::int64_t layer) { return layer == 0; });
}

Rules list_rules() {
  return {
      rule([](S s) { return num_listed_layers(s) != s.model->num_layers; },
           {&Moe::layer_freq,
            {"names ", num_listed_layers, " layers, ", &Model::num_layers, " is ",
             value(&Model::num_layers)},
            "list every layer once"}),
      rule(lists_other_numbers, {&Moe::layer_freq,
                                 "lists a number other than 0 and 1",
                                 "write 1 for a layer that has experts and 0 for one that has none",
                                 {&Model::num_layers}}),
      rule(lists_no_experts,
           {&Moe::layer_freq,
            "gives experts to no layer",
            {"write 1 for at least one layer, or leave ", &Moe::num_experts, " out"}}),
  };
}

Rules layer_rules() {
  return {
      when([](S s) { return num_listed_layers(s) > 0; }, list_rules()),
      excludes(&Moe::layer_freq, &Model::hybrid_layer_pattern,
               {.why = ", whose E are the layers with experts"}),
      excludes(
          is(&Model::norm_placement, "post"), &Moe::num_experts,
          {.fix = {"use ", &Model::norm_placement, " pre, or leave ", &Moe::num_experts, " out"}}),
      tunes({&Moe::shared_expert_gate, &Moe::shared_expert_overlap},
            &Moe::shared_expert_intermediate_size),
      when(&Moe::shared_expert_intermediate_size,
           excludes(&Moe::shared_expert_overlap, is(&Moe::token_dispatcher_type, "allgather"),
                    {.why = ", the default",
                     .fix = {"add ", &Moe::token_dispatcher_type, " alltoall"}})),
      needs(&Moe::pad_expert_input_to_capacity, &Moe::expert_capacity_factor,
            {.fix = {"add ", &Moe::expert_capacity_factor, " 1"}}),
      tunes({&Moe::token_drop_policy}, &Moe::expert_capacity_factor),
  };
}

bool has_scales(const std::string& dtype) { return dtype != "fp32" && dtype != "bf16"; }
bool has_scaled_states(S s) {
  return has_scales(s.optimizer->exp_avg_dtype) || has_scales(s.optimizer->exp_avg_sq_dtype);
}

Rules placement_rules() {
  return {
      refuse({&Moe::expert_placement_interval, is(&Parallel::expert_model_parallel_size, "1")},
             {"moves experts between the ranks of ", &Parallel::expert_model_parallel_size,
              ", which is 1"},
             {"leave it out, or raise ", &Parallel::expert_model_parallel_size}),
      needs(&Moe::expert_placement_interval, is(&Moe::token_dispatcher_type, "alltoall"),
            {.why = ": with the others the ranks add the results of their experts, whose order "
                    "would change"}),
      excludes(&Moe::expert_placement_interval, is(&Parallel::ddp_grad_compression, "low-rank"),
               {.why = ", whose errors belong to one rank"}),
      refuse({&Moe::expert_placement_interval, has_scaled_states},
             "excludes optimizer states in fp16, int8 and fp8, which share scales with other "
             "experts",
             {"use ", &Optimizer::exp_avg_dtype, " and ", &Optimizer::exp_avg_sq_dtype,
              " fp32 or bf16"}),
  };
}

}  // namespace

const Rules& moe_rules() {
  static const Rules rules = {
      dense_rules(),
      when(&Moe::num_experts, {expert_parallel_rules(), layer_rules(), placement_rules()}),
      router_rules()};
  return rules;
}

}  // namespace megatron
