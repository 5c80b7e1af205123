// Rules on the mixture of experts: layers, shared experts, capacity and expert parallelism. Rules
// on the router are in router_rules.cpp.
#include <algorithm>

#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using S = const Settings&;
using Parts = UserError::Parts;

const MoeConfig& moe(S s) { return s.model->moe; }
bool has_experts(S s) { return s.model->moe.num_experts > 0; }
std::int64_t ep(S s) { return s.parallel->expert_model_parallel_size; }
std::int64_t tp(S s) { return s.parallel->tensor_model_parallel_size; }
std::int64_t expert_tp(S s) { return s.parallel->expert_tensor_parallel_size.value_or(tp(s)); }

/// Returns the largest divisor of `size` up to `most`.
std::string largest_divisor(std::int64_t size, std::int64_t most) {
  std::int64_t degree = std::clamp<std::int64_t>(most, 1, size);
  while (size % degree != 0) --degree;
  return text_of(degree);
}

/// Returns the flags that ask for experts and that differ from their defaults.
std::string flags_of_experts(S s) {
  std::string flags;
  for (const Field& field : moe_table().set().fields) {
    if (!is_harmless_without_experts(field.name) && field.get(&moe(s)) != field.default_values)
      flags += (flags.empty() ? "" : ", ") + field.flag();
  }
  return flags;
}

const std::vector<Rule>& dense_rules() {
  static const std::vector<Rule> rules = {
      {{"num_experts"},
       [](S s) { return !has_experts(s) && !flags_of_experts(s).empty(); },
       [](S s) {
         const std::string flags = flags_of_experts(s);
         const bool several = flags.find(',') != std::string::npos;
         return Parts{
             flags,
             std::string(several ? "need" : "needs") +
                 " --num-experts, but every MLP of the model is dense",
             std::string("add --num-experts N, or leave ") + (several ? "them" : "it") + " out"};
       }},
      {{"expert_model_parallel_size", "num_experts"},
       [](S s) { return !has_experts(s) && ep(s) > 1; },
       [](S s) {
         return Parts{"--expert-model-parallel-size",
                      text_of(ep(s)) + " needs experts, but every MLP of the model is dense",
                      "add --num-experts N, a multiple of " + text_of(ep(s)) +
                          ", or leave --expert-model-parallel-size out"};
       }},
      {{"expert_tensor_parallel_size", "num_experts"},
       [](S s) {
         return !has_experts(s) && s.parallel->expert_tensor_parallel_size.value_or(1) > 1;
       },
       [](S s) {
         return Parts{"--expert-tensor-parallel-size",
                      text_of(expert_tp(s)) + " needs experts, but every MLP of the model is dense",
                      "add --num-experts N, or leave --expert-tensor-parallel-size out"};
       }},
  };
  return rules;
}

const std::vector<Rule>& expert_parallel_rules() {
  static const std::vector<Rule> rules = {
      {{"num_experts", "expert_model_parallel_size"},
       [](S s) { return has_experts(s) && moe(s).num_experts % ep(s) != 0; },
       [](S s) {
         return indivisible("--num-experts", moe(s).num_experts, "--expert-model-parallel-size",
                            ep(s));
       }},
      {{"moe_ffn_hidden_size", "ffn_hidden_size", "hidden_size", "num_experts",
        "expert_tensor_parallel_size", "tensor_model_parallel_size"},
       [](S s) {
         return has_experts(s) && moe(s).ffn_hidden_size > 0 &&
                moe(s).ffn_hidden_size % expert_tp(s) != 0;
       },
       [](S s) {
         Parts parts = indivisible("--moe-ffn-hidden-size", moe(s).ffn_hidden_size,
                                   "--expert-tensor-parallel-size", expert_tp(s));
         if (!s.parallel->expert_tensor_parallel_size)
           parts.got += ", which is that of --tensor-model-parallel-size";
         return parts;
       }},
      {{"moe_shared_expert_intermediate_size", "num_experts", "tensor_model_parallel_size"},
       [](S s) {
         return has_experts(s) && moe(s).shared_expert_intermediate_size > 0 &&
                moe(s).shared_expert_intermediate_size % tp(s) != 0;
       },
       [](S s) {
         return indivisible("--moe-shared-expert-intermediate-size",
                            moe(s).shared_expert_intermediate_size, "--tensor-model-parallel-size",
                            tp(s));
       }},
  };
  return rules;
}

const std::vector<Rule>& layer_rules() {
  static const std::vector<Rule> rules = {
      {{"moe_layer_freq", "num_experts", "num_layers"},
       [](S s) {
         return has_experts(s) && !moe(s).layers.empty() &&
                std::int64_t(moe(s).layers.size()) != s.model->num_layers;
       },
       [](S s) {
         return Parts{"--moe-layer-freq",
                      "names " + text_of(std::int64_t(moe(s).layers.size())) +
                          " layers, --num-layers is " + text_of(s.model->num_layers),
                      "list every layer once"};
       }},
      {{"moe_layer_freq", "num_experts", "num_layers"},
       [](S s) {
         return has_experts(s) && std::ranges::any_of(moe(s).layers, [](std::int64_t layer) {
                  return layer != 0 && layer != 1;
                });
       },
       [](S) {
         return Parts{"--moe-layer-freq", "lists a number other than 0 and 1",
                      "write 1 for a layer that has experts and 0 for one that has none"};
       }},
      {{"moe_layer_freq", "num_experts"},
       [](S s) {
         return has_experts(s) && !moe(s).layers.empty() &&
                std::ranges::all_of(moe(s).layers, [](std::int64_t layer) { return layer == 0; });
       },
       [](S) {
         return Parts{"--moe-layer-freq", "gives experts to no layer",
                      "write 1 for at least one layer, or leave --num-experts out"};
       }},
      {{"norm_placement", "num_experts"},
       [](S s) { return has_experts(s) && s.model->norm_placement == NormPlacement::post; },
       [](S) {
         return Parts{"--norm-placement post", "excludes --num-experts",
                      "use --norm-placement pre, or leave --num-experts out"};
       }},
      {{"moe_shared_expert_gate", "moe_shared_expert_intermediate_size", "num_experts"},
       [](S s) {
         return has_experts(s) && moe(s).shared_expert_gate &&
                moe(s).shared_expert_intermediate_size == 0;
       },
       [](S) {
         return Parts{"--moe-shared-expert-gate", "needs --moe-shared-expert-intermediate-size",
                      "add --moe-shared-expert-intermediate-size N"};
       }},
      {{"moe_shared_expert_overlap", "moe_shared_expert_intermediate_size", "num_experts"},
       [](S s) {
         return has_experts(s) && moe(s).shared_expert_overlap &&
                moe(s).shared_expert_intermediate_size == 0;
       },
       [](S) {
         return Parts{"--moe-shared-expert-overlap", "needs --moe-shared-expert-intermediate-size",
                      "add --moe-shared-expert-intermediate-size N"};
       }},
      {{"moe_shared_expert_overlap", "moe_token_dispatcher_type", "num_experts"},
       [](S s) {
         return has_experts(s) && moe(s).shared_expert_overlap &&
                moe(s).token_dispatcher_type == TokenDispatcherType::allgather;
       },
       [](S) {
         return Parts{"--moe-shared-expert-overlap",
                      "excludes --moe-token-dispatcher-type allgather, the default",
                      "add --moe-token-dispatcher-type alltoall"};
       }},
  };
  return rules;
}

bool places_experts(S s) { return has_experts(s) && moe(s).expert_placement_interval > 0; }

const std::vector<Rule>& placement_rules() {
  static const std::vector<Rule> rules = {
      {{"moe_expert_placement_interval", "expert_model_parallel_size", "num_experts"},
       [](S s) { return places_experts(s) && ep(s) == 1; },
       [](S) {
         return Parts{"--moe-expert-placement-interval",
                      "moves experts between the ranks of --expert-model-parallel-size, which is 1",
                      "leave it out, or raise --expert-model-parallel-size"};
       }},
      {{"moe_expert_placement_interval", "moe_token_dispatcher_type", "num_experts"},
       [](S s) {
         return places_experts(s) && moe(s).token_dispatcher_type != TokenDispatcherType::alltoall;
       },
       [](S) {
         return Parts{"--moe-expert-placement-interval",
                      "needs --moe-token-dispatcher-type alltoall: with the others the ranks add "
                      "the results of their experts, whose order would change",
                      "add --moe-token-dispatcher-type alltoall"};
       }},
      {{"moe_expert_placement_interval", "ddp_grad_compression", "num_experts"},
       [](S s) { return places_experts(s) && s.parallel->ddp_grad_compression == "low-rank"; },
       [](S) {
         return Parts{"--moe-expert-placement-interval",
                      "excludes --ddp-grad-compression low-rank, whose errors belong to one rank",
                      "give one of the two"};
       }},
      {{"moe_expert_placement_interval", "exp_avg_dtype", "exp_avg_sq_dtype", "num_experts"},
       [](S s) {
         const auto has_scales = [](const std::string& dtype) {
           return dtype != "fp32" && dtype != "bf16";
         };
         return places_experts(s) && (has_scales(s.optimizer->exp_avg_dtype) ||
                                      has_scales(s.optimizer->exp_avg_sq_dtype));
       },
       [](S) {
         return Parts{"--moe-expert-placement-interval",
                      "excludes optimizer states in fp16, int8 and fp8, which share scales with "
                      "other experts",
                      "use --exp-avg-dtype and --exp-avg-sq-dtype fp32 or bf16"};
       }},
  };
  return rules;
}

const std::vector<Rule>& capacity_rules() {
  static const std::vector<Rule> rules = {
      {{"moe_pad_expert_input_to_capacity", "moe_expert_capacity_factor", "num_experts"},
       [](S s) {
         return has_experts(s) && moe(s).pad_expert_input_to_capacity &&
                !moe(s).expert_capacity_factor;
       },
       [](S) {
         return Parts{"--moe-pad-expert-input-to-capacity", "needs --moe-expert-capacity-factor",
                      "add --moe-expert-capacity-factor 1"};
       }},
  };
  return rules;
}

}  // namespace

std::string multiples_near(std::int64_t size, std::int64_t unit) {
  const std::int64_t below = size / unit * unit;
  return (below > 0 ? text_of(below) + " or " : "") + text_of(below + unit);
}

Parts indivisible(const std::string& flag, std::int64_t size, const std::string& unit_flag,
                  std::int64_t unit) {
  return {flag, text_of(size) + " is no multiple of " + unit_flag + " " + text_of(unit),
          "use " + unit_flag + " " + largest_divisor(size, unit) + ", or " + flag + " " +
              multiples_near(size, unit)};
}

const std::vector<Rule>& moe_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all;
    for (const auto* list : {&dense_rules(), &expert_parallel_rules(), &layer_rules(),
                             &capacity_rules(), &placement_rules(), &router_rules()})
      all.insert(all.end(), list->begin(), list->end());
    return all;
  }();
  return rules;
}

}  // namespace megatron
