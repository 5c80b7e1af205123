// Rules between the parallel flags, and between them and the architecture. Rules on the world size
// are in world_rules.cpp.
#include <algorithm>
#include <initializer_list>

#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using S = const Settings&;

std::int64_t tp(S s) { return s.parallel->tensor_model_parallel_size; }
bool is_sharded(S s) { return zero_stage(*s.parallel) > 0; }
bool has_low_rank(S s) { return s.parallel->ddp_grad_compression == "low-rank"; }

bool has_dense_mlp(S s) {
  const MoeConfig& moe = s.model->moe;
  return moe.num_experts == 0 || std::ranges::find(moe.layers, 0) != moe.layers.end();
}

std::string tp_text(S s) { return "--tensor-model-parallel-size " + text_of(tp(s)); }

/// Returns the largest degree up to tp that divides `size`.
std::string largest_divisor(S s, std::int64_t size) {
  std::int64_t degree = std::min(tp(s), size);
  while (size % degree != 0) --degree;
  return text_of(degree);
}

UserError::Parts indivisible(const char* flag, std::int64_t size, S s) {
  return {flag, text_of(size) + " is no multiple of " + tp_text(s),
          "use --tensor-model-parallel-size " + largest_divisor(s, size) + ", or change " + flag};
}

const std::vector<Rule>& tensor_rules() {
  static const std::vector<Rule> rules = {
      {{"sequence_parallel", "tensor_model_parallel_size", "seq_length"},
       [](S s) {
         return s.parallel->sequence_parallel && tp(s) > 1 && s.training->seq_length % tp(s) != 0;
       },
       [](S s) {
         return UserError::Parts{"--seq-length",
                                 text_of(s.training->seq_length) + " is no multiple of " +
                                     tp_text(s) + ", as --sequence-parallel needs",
                                 "use --seq-length " +
                                     text_of((s.training->seq_length / tp(s) + 1) * tp(s)) +
                                     ", or leave --sequence-parallel out"};
       }},
      {{"tp_comm_overlap", "sequence_parallel"},
       [](S s) {
         return s.parallel->tp_comm_overlap && !s.parallel->sequence_parallel && tp(s) > 1;
       },
       [](S) {
         return UserError::Parts{"--tp-comm-overlap", "needs --sequence-parallel",
                                 "add --sequence-parallel, or leave --tp-comm-overlap out"};
       }},
  };
  return rules;
}

const std::vector<Rule>& data_parallel_rules() {
  static const std::vector<Rule> rules = {
      {{"ddp_bucket_size", "ddp_num_buckets"},
       [](S s) { return s.parallel->ddp_bucket_size && s.parallel->ddp_num_buckets; },
       [](S) {
         return UserError::Parts{"--ddp-bucket-size", "excludes --ddp-num-buckets",
                                 "give one of the two"};
       }},
      {{"ddp_average_in_collective", "calculate_per_token_loss"},
       [](S s) {
         return s.parallel->ddp_average_in_collective && s.training->calculate_per_token_loss;
       },
       [](S) {
         return UserError::Parts{
             "--ddp-average-in-collective",
             "excludes --calculate-per-token-loss, which divides a sum by all tokens",
             "leave --ddp-average-in-collective out"};
       }},
      {{"ddp_grad_compression", "use_distributed_optimizer"},
       [](S s) { return has_low_rank(s) && is_sharded(s); },
       [](S s) {
         const std::string flag = stage_flag(*s.parallel);
         return UserError::Parts{"--ddp-grad-compression low-rank",
                                 "excludes " + flag + ", whose shards cut through matrices",
                                 "use --ddp-grad-compression bf16, or leave " + flag + " out"};
       }},
      {{"ddp_grad_compression", "fp16"},
       [](S s) { return has_low_rank(s) && s.training->fp16; },
       [](S) {
         return UserError::Parts{
             "--ddp-grad-compression low-rank",
             "excludes --fp16, whose loss scale changes the unit of the error feedback",
             "use --bf16, or --ddp-grad-compression bf16"};
       }},
  };
  return rules;
}

const std::vector<Rule>& optimizer_rules() {
  static const std::vector<Rule> rules = {
      {{"overlap_param_gather", "use_distributed_optimizer", "overlap_grad_reduce"},
       [](S s) {
         return s.parallel->overlap_param_gather &&
                !(is_sharded(s) && s.parallel->overlap_grad_reduce);
       },
       [](S s) {
         const std::string missing = is_sharded(s) ? "--overlap-grad-reduce"
                                     : s.parallel->overlap_grad_reduce
                                         ? "--use-distributed-optimizer"
                                         : "--use-distributed-optimizer and --overlap-grad-reduce";
         return UserError::Parts{"--overlap-param-gather", "needs " + missing, "add " + missing};
       }},
      {{"num_distributed_optimizer_instances", "use_distributed_optimizer"},
       [](S s) { return s.parallel->num_distributed_optimizer_instances > 1 && !is_sharded(s); },
       [](S) {
         return UserError::Parts{"--num-distributed-optimizer-instances",
                                 "needs --use-distributed-optimizer",
                                 "add --use-distributed-optimizer"};
       }},
      {{"ddp_reduce_scatter_with_fp32_accumulation", "use_distributed_optimizer"},
       [](S s) { return s.parallel->ddp_reduce_scatter_with_fp32_accumulation && !is_sharded(s); },
       [](S) {
         return UserError::Parts{"--ddp-reduce-scatter-with-fp32-accumulation",
                                 "needs --use-distributed-optimizer, which scatters gradients",
                                 "add --use-distributed-optimizer"};
       }},
  };
  return rules;
}

std::vector<Rule> joined(std::initializer_list<const std::vector<Rule>*> lists) {
  std::vector<Rule> all;
  for (const auto* rules : lists) all.insert(all.end(), rules->begin(), rules->end());
  return all;
}

}  // namespace

const std::vector<Rule>& parallel_rules() {
  static const std::vector<Rule> rules =
      joined({&tensor_rules(), &context_rules(), &hybrid_context_rules(), &data_parallel_rules(),
              &optimizer_rules(), &zero_rules()});
  return rules;
}

const std::vector<Rule>& sharding_rules() {
  static const std::vector<Rule> rules = {
      {{"num_attention_heads", "tensor_model_parallel_size"},
       [](S s) {
         return s.model->num_attention_heads > 0 && s.model->num_attention_heads % tp(s) != 0;
       },
       [](S s) { return indivisible("--num-attention-heads", s.model->num_attention_heads, s); }},
      {{"ffn_hidden_size", "hidden_size", "num_experts", "moe_layer_freq",
        "tensor_model_parallel_size"},
       [](S s) { return has_dense_mlp(s) && s.model->ffn_hidden_size % tp(s) != 0; },
       [](S s) { return indivisible("--ffn-hidden-size", s.model->ffn_hidden_size, s); }},
      {{"num_query_groups", "num_attention_heads", "tensor_model_parallel_size"},
       [](S s) {
         const std::int64_t groups = s.model->group_query_attention ? s.model->num_query_groups : 0;
         return groups > 0 && groups % tp(s) != 0 && tp(s) % groups != 0;
       },
       [](S s) {
         return UserError::Parts{"--num-query-groups",
                                 text_of(s.model->num_query_groups) + " and " + tp_text(s) +
                                     ": neither divides the other",
                                 "use --tensor-model-parallel-size " +
                                     largest_divisor(s, s.model->num_query_groups) +
                                     ", or change --num-query-groups"};
       }},
  };
  return rules;
}

}  // namespace megatron
