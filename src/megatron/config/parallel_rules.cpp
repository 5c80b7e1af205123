// Rules between the parallel flags, and between them and the architecture. Rules on the world size
// are in world_rules.cpp.

#include "megatron/config/layer_plan.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using namespace rules;

std::int64_t tp(S s) { return s.parallel->tensor_model_parallel_size; }
bool is_sharded(S s) { return zero_stage(*s.parallel) > 0; }

bool has_dense_mlp(S s) { return has_feed_forward(*s.model, FeedForwardKind::mlp); }

Rules tensor_rules() {
  return {
      when(&Parallel::sequence_parallel,
           divides(&Parallel::tensor_model_parallel_size, &Training::seq_length,
                   {.why = {", as ", &Parallel::sequence_parallel, " needs"}})),
      when(&Parallel::tensor_model_parallel_size,
           needs(&Parallel::tp_comm_overlap, &Parallel::sequence_parallel)),
  };
}

Rules data_parallel_rules() {
  const Condition low_rank = is(&Parallel::ddp_grad_compression, "low-rank");
  const Condition sharding = {is_sharded, stage_flag};
  const Condition sharded = {is_sharded, &Parallel::use_distributed_optimizer};
  return {
      excludes(&Parallel::ddp_bucket_size, &Parallel::ddp_num_buckets),
      excludes(&Parallel::ddp_average_in_collective, &Training::calculate_per_token_loss,
               {.why = ", which divides a sum by all tokens",
                .fix = {"leave ", &Parallel::ddp_average_in_collective, " out"}}),
      excludes(low_rank, sharding,
               {.why = ", whose shards cut through matrices",
                .fix = {"use ", &Parallel::ddp_grad_compression, " bf16, or leave ", stage_flag,
                        " out"}}),
      excludes(
          low_rank, &Training::fp16,
          {.why = ", whose loss scale changes the unit of the error feedback",
           .fix = {"use ", &Training::bf16, ", or ", &Parallel::ddp_grad_compression, " bf16"}}),
      needs(&Parallel::overlap_param_gather, sharded),
      needs(&Parallel::overlap_param_gather, &Parallel::overlap_grad_reduce),
      needs(&Parallel::num_distributed_optimizer_instances, sharded),
      tunes({&Parallel::ddp_grad_compression_rank}, low_rank),
      tunes({&Parallel::ddp_reduce_scatter_with_fp32_accumulation}, sharded,
            {.why = ", which scatters gradients"}),
  };
}

bool groups_do_not_fit(S s) {
  if (!has_attention(*s.model)) return false;
  const std::int64_t groups = s.model->group_query_attention ? s.model->num_query_groups : 0;
  return groups > 0 && groups % tp(s) != 0 && tp(s) % groups != 0;
}

std::int64_t tp_of_groups(S s) { return largest_divisor(s.model->num_query_groups, tp(s)); }

}  // namespace

const Rules& parallel_rules() {
  static const Rules rules = {tensor_rules(), context_rules(), hybrid_context_rules(),
                              data_parallel_rules(), zero_rules()};
  return rules;
}

const Rules& sharding_rules() {
  static const Condition dense_mlp = {
      has_dense_mlp, {}, {&Model::hidden_size, &Moe::num_experts, &Moe::layer_freq}};
  static const Rules rules = {
      when([](S s) { return has_attention(*s.model); },
           divides(&Parallel::tensor_model_parallel_size, &Model::num_attention_heads)),
      when(&Model::mtp_num_layers,
           divides(&Parallel::tensor_model_parallel_size, &Model::hidden_size)),
      when(dense_mlp, divides(&Parallel::tensor_model_parallel_size, &Model::ffn_hidden_size)),
      rule(groups_do_not_fit,
           {&Model::num_query_groups,
            {value(&Model::num_query_groups), " and ",
             with_value(&Parallel::tensor_model_parallel_size), ": neither divides the other"},
            {"use ", &Parallel::tensor_model_parallel_size, " ", tp_of_groups, ", or change ",
             &Model::num_query_groups},
            {&Model::num_attention_heads}}),
  };
  return rules;
}

}  // namespace megatron
