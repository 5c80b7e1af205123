// Rules on what data-parallel ranks divide among them: the stages of ZeRO, FSDP and HSDP.
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using namespace rules;

int stage(S s) { return zero_stage(*s.parallel); }

/// Returns the stage that --use-torch-fsdp2 stands for.
int torch_stage(S s) { return s.parallel->torch_fsdp2_reshard_after_forward ? 3 : 2; }

}  // namespace

Words rules::stage_flag(S s) {
  if (s.parallel->zero_stage) return with_value(&Parallel::zero_stage);
  if (!s.parallel->data_parallel_sharding_strategy.empty())
    return with_value(&Parallel::data_parallel_sharding_strategy);
  if (s.parallel->use_megatron_fsdp) return &Parallel::use_megatron_fsdp;
  if (s.parallel->use_torch_fsdp2) return &Parallel::use_torch_fsdp2;
  return &Parallel::use_distributed_optimizer;
}

const Rules& zero_rules() {
  static const Rules contradictions = {
      rule(
          [](S s) {
            const std::string& strategy = s.parallel->data_parallel_sharding_strategy;
            return s.parallel->zero_stage && !strategy.empty() &&
                   *s.parallel->zero_stage != stage_of_strategy(strategy);
          },
          [](S s) {
            return Message{with_value(&Parallel::zero_stage),
                           {"contradicts ", with_value(&Parallel::data_parallel_sharding_strategy),
                            ", which is stage ",
                            stage_of_strategy(s.parallel->data_parallel_sharding_strategy)},
                           "give one of the two"};
          }),
      rule([](S s) { return s.parallel->use_distributed_optimizer && stage(s) == 0; },
           [](S s) {
             return Message{&Parallel::use_distributed_optimizer,
                            "contradicts " + stage_flag(s) + ", which shards nothing",
                            "leave one of the two out"};
           }),
      rule([](S s) { return s.parallel->use_megatron_fsdp && s.parallel->zero_stage == 0; },
           {&Parallel::use_megatron_fsdp,
            {"shards the weights and contradicts ", &Parallel::zero_stage, " 0"},
            "leave one of the two out"}),
      excludes(&Parallel::use_torch_fsdp2, &Parallel::use_megatron_fsdp),
      rule([](S s) { return s.parallel->use_torch_fsdp2 && stage(s) != torch_stage(s); },
           [](S s) {
             return Message{&Parallel::use_torch_fsdp2,
                            Words{"is stage ", torch_stage(s), " of ZeRO here and contradicts "} +
                                stage_flag(s),
                            "give one of the two"};
           }),
      rule(
          [](S s) {
            return !s.parallel->use_torch_fsdp2 && !s.parallel->torch_fsdp2_reshard_after_forward;
          },
          {off(&Parallel::torch_fsdp2_reshard_after_forward),
           {"needs ", &Parallel::use_torch_fsdp2},
           {"add ", &Parallel::use_torch_fsdp2}}),
  };
  static const Rules limits = {
      rule([](S s) { return s.parallel->suggested_communication_unit_size && stage(s) < 2; },
           {&Parallel::suggested_communication_unit_size,
            {"needs sharded gradients or weights: ", &Parallel::use_megatron_fsdp, ", or ",
             &Parallel::zero_stage, " 2 or 3"},
            "add one, or leave it out"}),
      rule([](S s) { return s.parallel->ddp_grad_compression != "none" && stage(s) > 1; },
           [](S s) {
             return Message{
                 with_value(&Parallel::ddp_grad_compression),
                 "excludes " + stage_flag(s) + ", which reduces the gradients of each microbatch",
                 {"use ", &Training::grad_reduce_in_bf16, ", or stage 1 (",
                  &Parallel::use_distributed_optimizer, ")"}};
           }),
      rule([](S s) { return s.optimizer->main_grads_error_feedback && stage(s) > 1; },
           [](S s) {
             return Message{
                 &Optimizer::main_grads_error_feedback,
                 "excludes " + stage_flag(s) + ", which keeps no whole gradients to add to",
                 {"leave it out, or use stage 1 (", &Parallel::use_distributed_optimizer, ")"}};
           }),
      rule([](S s) { return s.optimizer->optimizer == "adafactor" && stage(s) > 1; },
           [](S s) {
             return Message{with_value(&Optimizer::optimizer),
                            "excludes " + stage_flag(s) + ", which divides matrices among ranks",
                            {"use stage 1 (", &Parallel::use_distributed_optimizer, "), or ",
                             &Optimizer::optimizer, " adam"}};
           }),
      rule([](S s) { return s.parallel->pipeline_schedule == "combined-1f1b" && stage(s) == 3; },
           [](S s) {
             return Message{with_value(&Parallel::pipeline_schedule),
                            "excludes " + stage_flag(s) +
                                ", because the layers of two microbatches alternate and would be "
                                "gathered again for every op",
                            {"use ", &Parallel::zero_stage, " 2, or another schedule"}};
           }),
      rule(
          [](S s) {
            return s.parallel->outer_dp_sharding_strategy == "optim" &&
                   (stage(s) < 3 || s.parallel->num_distributed_optimizer_instances == 1);
          },
          [](S s) {
            return Message{
                with_value(&Parallel::outer_dp_sharding_strategy),
                {"needs sharded weights and several ",
                 &Parallel::num_distributed_optimizer_instances},
                (stage(s) < 3 ? Words{"use ", &Parallel::zero_stage, " 3"}
                              : Words{"add ", &Parallel::num_distributed_optimizer_instances}) +
                    Words{", or leave ", &Parallel::outer_dp_sharding_strategy, " out"}};
          }),
  };
  static const Rules rules = {contradictions, limits};
  return rules;
}

}  // namespace megatron
