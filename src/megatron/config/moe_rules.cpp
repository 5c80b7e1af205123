// Rules on the mixture of experts: layers, shared experts, capacity and expert parallelism. Rules
// on the router are in router_rules.cpp.
#include <algorithm>

#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using namespace rules;

const MoeConfig& moe(S s) { return s.model->moe; }
bool has_experts(S s) { return s.model->moe.num_experts > 0; }
std::int64_t ep(S s) { return s.parallel->expert_model_parallel_size; }
std::int64_t tp(S s) { return s.parallel->tensor_model_parallel_size; }
std::int64_t expert_tp(S s) { return s.parallel->expert_tensor_parallel_size.value_or(tp(s)); }

constexpr const char* kNeedsExperts = " needs experts, but every MLP of the model is dense";

/// Returns the settings that ask for experts and that differ from their defaults.
std::vector<std::string> flags_of_experts(S s) {
  std::vector<std::string> flags;
  for (const Field& field : moe_table().set().fields) {
    if (!is_harmless_without_experts(field.name) && field.get(&moe(s)) != field.default_values)
      flags.push_back(field.flag());
  }
  return flags;
}

bool is_dense(S s) { return !has_experts(s); }

Rules dense_rules() {
  return {
      rule([](S s) { return !flags_of_experts(s).empty(); },
           [](S s) {
             const std::vector<std::string> flags = flags_of_experts(s);
             Words all;
             for (const std::string& flag : flags) all = all + (all.empty() ? "" : ", ") + flag;
             const bool several = flags.size() > 1;
             return Message{
                 all,
                 {several ? "need" : "needs", " ", &Moe::num_experts,
                  ", but every MLP of the model is dense"},
                 {"add ", &Moe::num_experts, " N, or leave ", several ? "them" : "it", " out"}};
           }),
      refuse({&Parallel::expert_model_parallel_size},
             {value(&Parallel::expert_model_parallel_size), kNeedsExperts},
             {"add ", &Moe::num_experts, " N, a multiple of ",
              value(&Parallel::expert_model_parallel_size), ", or leave ",
              &Parallel::expert_model_parallel_size, " out"}),
      rule([](S s) { return s.parallel->expert_tensor_parallel_size.value_or(1) > 1; },
           {&Parallel::expert_tensor_parallel_size,
            {value(&Parallel::expert_tensor_parallel_size), kNeedsExperts},
            {"add ", &Moe::num_experts, " N, or leave ", &Parallel::expert_tensor_parallel_size,
             " out"}}),
  };
}

Rules expert_parallel_rules() {
  return {
      divides(&Parallel::expert_model_parallel_size, &Moe::num_experts),
      rule([](S s) { return moe(s).ffn_hidden_size % expert_tp(s) != 0; },
           [](S s) {
             Message message = indivisible(&Moe::ffn_hidden_size, moe(s).ffn_hidden_size,
                                           &Parallel::expert_tensor_parallel_size, expert_tp(s));
             if (!s.parallel->expert_tensor_parallel_size)
               message.got = message.got +
                             Words{", which is that of ", &Parallel::tensor_model_parallel_size};
             message.reads = {&Model::ffn_hidden_size, &Model::hidden_size,
                              &Parallel::tensor_model_parallel_size};
             return message;
           }),
      divides(&Parallel::tensor_model_parallel_size, &Moe::shared_expert_intermediate_size),
  };
}

std::int64_t num_listed_layers(S s) { return std::ssize(moe(s).layers); }

const Rules& layer_rules() {
  static const Rules of_lists = {
      rule([](S s) { return num_listed_layers(s) != s.model->num_layers; },
           {&Moe::layer_freq,
            {"names ", num_listed_layers, " layers, ", &Model::num_layers, " is ",
             value(&Model::num_layers)},
            "list every layer once"}),
      rule(
          [](S s) {
            return std::ranges::any_of(moe(s).layers,
                                       [](std::int64_t layer) { return layer != 0 && layer != 1; });
          },
          {&Moe::layer_freq,
           "lists a number other than 0 and 1",
           "write 1 for a layer that has experts and 0 for one that has none",
           {&Model::num_layers}}),
      rule(
          [](S s) {
            return std::ranges::all_of(moe(s).layers,
                                       [](std::int64_t layer) { return layer == 0; });
          },
          {&Moe::layer_freq,
           "gives experts to no layer",
           {"write 1 for at least one layer, or leave ", &Moe::num_experts, " out"}}),
  };
  static const Rules rules = {
      when([](S s) { return !moe(s).layers.empty(); }, of_lists),
      excludes(
          is(&Model::norm_placement, "post"), &Moe::num_experts,
          {.fix = {"use ", &Model::norm_placement, " pre, or leave ", &Moe::num_experts, " out"}}),
      needs(&Moe::shared_expert_gate, &Moe::shared_expert_intermediate_size,
            {.fix = {"add ", &Moe::shared_expert_intermediate_size, " N"}}),
      needs(&Moe::shared_expert_overlap, &Moe::shared_expert_intermediate_size,
            {.fix = {"add ", &Moe::shared_expert_intermediate_size, " N"}}),
      excludes(&Moe::shared_expert_overlap, is(&Moe::token_dispatcher_type, "allgather"),
               {.why = ", the default", .fix = {"add ", &Moe::token_dispatcher_type, " alltoall"}}),
  };
  return rules;
}

bool has_scales(const std::string& dtype) { return dtype != "fp32" && dtype != "bf16"; }

Rules placement_rules() {
  return {
      refuse({&Moe::expert_placement_interval, is(&Parallel::expert_model_parallel_size, "1")},
             {"moves experts between the ranks of ", &Parallel::expert_model_parallel_size,
              ", which is 1"},
             {"leave it out, or raise ", &Parallel::expert_model_parallel_size}),
      needs(&Moe::expert_placement_interval, is(&Moe::token_dispatcher_type, "alltoall"),
            {.why = ": with the others the ranks add the results of their experts, whose order "
                    "would change",
             .fix = {"add ", &Moe::token_dispatcher_type, " alltoall"}}),
      excludes(&Moe::expert_placement_interval, is(&Parallel::ddp_grad_compression, "low-rank"),
               {.why = ", whose errors belong to one rank"}),
      rule(
          [](S s) {
            return has_scales(s.optimizer->exp_avg_dtype) ||
                   has_scales(s.optimizer->exp_avg_sq_dtype);
          },
          {&Moe::expert_placement_interval,
           "excludes optimizer states in fp16, int8 and fp8, which share scales with other experts",
           {"use ", &Optimizer::exp_avg_dtype, " and ", &Optimizer::exp_avg_sq_dtype,
            " fp32 or bf16"}}),
  };
}

}  // namespace

const Rules& moe_rules() {
  static const Rules of_experts = {
      expert_parallel_rules(), layer_rules(),
      needs(&Moe::pad_expert_input_to_capacity, &Moe::expert_capacity_factor,
            {.fix = {"add ", &Moe::expert_capacity_factor, " 1"}}),
      when([](S s) { return moe(s).expert_placement_interval > 0; }, placement_rules())};
  static const Rules rules = {when(is_dense, dense_rules()), when(has_experts, of_experts),
                              router_rules()};
  return rules;
}

}  // namespace megatron
