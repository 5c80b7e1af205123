// Rules between the parallel flags, and between them and the architecture. Rules on the world size
// are in world_rules.cpp.
#include <algorithm>
#include <initializer_list>

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

bool has_dense_mlp(S s) {
  const MoeConfig& moe = s.model->moe;
  return moe.num_experts == 0 || std::ranges::find(moe.layers, 0) != moe.layers.end();
}

/// Returns the message that `size`, the value of `setting`, is no multiple of tp.
Message indivisible_by_tp(const Setting& setting, std::int64_t size, S s) {
  return {setting,
          {size, " is no multiple of ", with_value(&Parallel::tensor_model_parallel_size)},
          {"use ", &Parallel::tensor_model_parallel_size, " ", largest_divisor(size, tp(s)),
           ", or change ", setting}};
}

Rules tensor_rules() {
  return {
      rule([](S s) { return s.parallel->sequence_parallel && s.training->seq_length % tp(s) != 0; },
           [](S s) {
             return Message{
                 &Training::seq_length,
                 {value(&Training::seq_length), " is no multiple of ",
                  with_value(&Parallel::tensor_model_parallel_size), ", as ",
                  &Parallel::sequence_parallel, " needs"},
                 {"use ", &Training::seq_length, " ", (s.training->seq_length / tp(s) + 1) * tp(s),
                  ", or leave ", &Parallel::sequence_parallel, " out"}};
           }),
      when([](S s) { return tp(s) > 1; },
           needs(&Parallel::tp_comm_overlap, &Parallel::sequence_parallel)),
  };
}

Rules data_parallel_rules() {
  return {
      excludes(&Parallel::ddp_bucket_size, &Parallel::ddp_num_buckets),
      excludes(&Parallel::ddp_average_in_collective, &Training::calculate_per_token_loss,
               {.why = ", which divides a sum by all tokens",
                .fix = {"leave ", &Parallel::ddp_average_in_collective, " out"}}),
      when(is_sharded, refuse({is(&Parallel::ddp_grad_compression, "low-rank")},
                              {"excludes ", stage_flag, ", whose shards cut through matrices"},
                              {"use ", &Parallel::ddp_grad_compression, " bf16, or leave ",
                               stage_flag, " out"})),
      excludes(
          is(&Parallel::ddp_grad_compression, "low-rank"), &Training::fp16,
          {.why = ", whose loss scale changes the unit of the error feedback",
           .fix = {"use ", &Training::bf16, ", or ", &Parallel::ddp_grad_compression, " bf16"}}),
  };
}

Words missing_for_gather(S s) {
  if (is_sharded(s)) return &Parallel::overlap_grad_reduce;
  if (s.parallel->overlap_grad_reduce) return &Parallel::use_distributed_optimizer;
  return {&Parallel::use_distributed_optimizer, " and ", &Parallel::overlap_grad_reduce};
}

Rules optimizer_rules() {
  return {
      rule(
          [](S s) {
            return s.parallel->overlap_param_gather &&
                   !(is_sharded(s) && s.parallel->overlap_grad_reduce);
          },
          {&Parallel::overlap_param_gather,
           {"needs ", missing_for_gather},
           {"add ", missing_for_gather}}),
      when([](S s) { return !is_sharded(s); },
           {refuse({&Parallel::num_distributed_optimizer_instances},
                   {"needs ", &Parallel::use_distributed_optimizer},
                   {"add ", &Parallel::use_distributed_optimizer}),
            refuse({&Parallel::ddp_reduce_scatter_with_fp32_accumulation},
                   {"needs ", &Parallel::use_distributed_optimizer, ", which scatters gradients"},
                   {"add ", &Parallel::use_distributed_optimizer})}),
  };
}

}  // namespace

const Rules& parallel_rules() {
  static const Rules rules = {tensor_rules(),        context_rules(),   hybrid_context_rules(),
                              data_parallel_rules(), optimizer_rules(), zero_rules()};
  return rules;
}

const Rules& sharding_rules() {
  static const Rules rules = {
      rule(
          [](S s) {
            return s.model->num_attention_heads > 0 && s.model->num_attention_heads % tp(s) != 0;
          },
          [](S s) {
            return indivisible_by_tp(&Model::num_attention_heads, s.model->num_attention_heads, s);
          }),
      rule([](S s) { return has_dense_mlp(s) && s.model->ffn_hidden_size % tp(s) != 0; },
           [](S s) {
             Message message =
                 indivisible_by_tp(&Model::ffn_hidden_size, s.model->ffn_hidden_size, s);
             message.reads = {&Model::hidden_size, &Moe::num_experts, &Moe::layer_freq};
             return message;
           }),
      rule(
          [](S s) {
            const std::int64_t groups =
                s.model->group_query_attention ? s.model->num_query_groups : 0;
            return groups > 0 && groups % tp(s) != 0 && tp(s) % groups != 0;
          },
          [](S s) {
            return Message{
                &Model::num_query_groups,
                {value(&Model::num_query_groups), " and ",
                 with_value(&Parallel::tensor_model_parallel_size), ": neither divides the other"},
                {"use ", &Parallel::tensor_model_parallel_size, " ",
                 largest_divisor(s.model->num_query_groups, tp(s)), ", or change ",
                 &Model::num_query_groups},
                {&Model::num_attention_heads}};
          }),
  };
  return rules;
}

}  // namespace megatron
