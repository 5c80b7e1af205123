// Rules on what data-parallel ranks divide among them: the stages of ZeRO, FSDP and HSDP.
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using namespace rules;

int stage(S s) { return zero_stage(*s.parallel); }

/// Returns the stage that --use-torch-fsdp2 stands for.
std::int64_t torch_stage(S s) { return s.parallel->torch_fsdp2_reshard_after_forward ? 3 : 2; }

/// Returns the stage that --data-parallel-sharding-strategy stands for.
std::int64_t strategy_stage(S s) {
  return stage_of_strategy(s.parallel->data_parallel_sharding_strategy);
}

/// Holds if the stage is at least `least`. Its words are the flag that decides the stage.
Condition from_stage(int least) {
  return {[=](S s) { return stage(s) >= least; }, stage_flag};
}

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
  static const Words use_stage_1 = {"use stage 1 (", &Parallel::use_distributed_optimizer, ")"};
  static const Rules rules = {
      refuse({valued(&Parallel::zero_stage), &Parallel::data_parallel_sharding_strategy,
              [](S s) { return *s.parallel->zero_stage != strategy_stage(s); }},
             {"contradicts ", with_value(&Parallel::data_parallel_sharding_strategy),
              ", which is stage ", strategy_stage},
             "give one of the two"),
      refuse({&Parallel::use_distributed_optimizer, without(from_stage(1))},
             {"contradicts ", stage_flag, ", which shards nothing"}, "leave one of the two out"),
      refuse({&Parallel::use_megatron_fsdp, is(&Parallel::zero_stage, "0")},
             {"shards the weights and contradicts ", &Parallel::zero_stage, " 0"},
             "leave one of the two out"),
      excludes(&Parallel::use_torch_fsdp2, &Parallel::use_megatron_fsdp),
      refuse({&Parallel::use_torch_fsdp2, [](S s) { return stage(s) != torch_stage(s); }},
             {"is stage ", torch_stage, " of ZeRO here and contradicts ", stage_flag},
             "give one of the two"),
      tunes({&Parallel::torch_fsdp2_reshard_after_forward}, &Parallel::use_torch_fsdp2),
      note({&Parallel::suggested_communication_unit_size, without(from_stage(2))},
           "without effect: neither gradients nor weights are sharded"),
      excludes(valued(&Parallel::ddp_grad_compression), from_stage(2),
               {.why = ", which reduces the gradients of each microbatch",
                .fix = use_stage_1 + Words{", or ", &Training::grad_reduce_in_bf16}}),
      excludes(&Optimizer::main_grads_error_feedback, from_stage(2),
               {.why = ", which keeps no whole gradients to add to",
                .fix = use_stage_1 + ", or leave it out"}),
      excludes(is(&Parallel::pipeline_schedule, "combined-1f1b"), from_stage(3),
               {.why = ", because the layers of two microbatches alternate and would be gathered "
                       "again for every op",
                .fix = {"use ", &Parallel::zero_stage, " 2, or another schedule"}}),
      note({is(&Parallel::outer_dp_sharding_strategy, "optim"),
            any({without(from_stage(3)), without(&Parallel::num_distributed_optimizer_instances)})},
           {"without effect: it is for ", &Parallel::zero_stage, " 3 with several ",
            &Parallel::num_distributed_optimizer_instances}),
  };
  return rules;
}

}  // namespace megatron
