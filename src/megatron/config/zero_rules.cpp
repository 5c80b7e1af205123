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
  static const Rules rules = {
      rule(
          [](S s) {
            return s.parallel->zero_stage && !s.parallel->data_parallel_sharding_strategy.empty() &&
                   *s.parallel->zero_stage != strategy_stage(s);
          },
          {with_value(&Parallel::zero_stage),
           {"contradicts ", with_value(&Parallel::data_parallel_sharding_strategy),
            ", which is stage ", strategy_stage},
           "give one of the two"}),
      rule([](S s) { return s.parallel->use_distributed_optimizer && stage(s) == 0; },
           {&Parallel::use_distributed_optimizer,
            {"contradicts ", stage_flag, ", which shards nothing"},
            "leave one of the two out"}),
      refuse({&Parallel::use_megatron_fsdp, is(&Parallel::zero_stage, "0")},
             {"shards the weights and contradicts ", &Parallel::zero_stage, " 0"},
             "leave one of the two out"),
      excludes(&Parallel::use_torch_fsdp2, &Parallel::use_megatron_fsdp),
      rule([](S s) { return s.parallel->use_torch_fsdp2 && stage(s) != torch_stage(s); },
           {&Parallel::use_torch_fsdp2,
            {"is stage ", torch_stage, " of ZeRO here and contradicts ", stage_flag},
            "give one of the two"}),
      needs(&Parallel::torch_fsdp2_reshard_after_forward, &Parallel::use_torch_fsdp2),
      when([](S s) { return stage(s) < 2; },
           refuse({&Parallel::suggested_communication_unit_size},
                  {"needs sharded gradients or weights: ", &Parallel::use_megatron_fsdp, ", or ",
                   &Parallel::zero_stage, " 2 or 3"},
                  "add one, or leave it out")),
      when([](S s) { return stage(s) > 1; },
           {refuse({valued(&Parallel::ddp_grad_compression)},
                   {"excludes ", stage_flag, ", which reduces the gradients of each microbatch"},
                   {"use ", &Training::grad_reduce_in_bf16, ", or stage 1 (",
                    &Parallel::use_distributed_optimizer, ")"}),
            refuse({&Optimizer::main_grads_error_feedback},
                   {"excludes ", stage_flag, ", which keeps no whole gradients to add to"},
                   {"leave it out, or use stage 1 (", &Parallel::use_distributed_optimizer, ")"}),
            refuse({is(&Optimizer::optimizer, "adafactor")},
                   {"excludes ", stage_flag, ", which divides matrices among ranks"},
                   {"use stage 1 (", &Parallel::use_distributed_optimizer, "), or ",
                    &Optimizer::optimizer, " adam"})}),
      when([](S s) { return stage(s) == 3; },
           refuse({is(&Parallel::pipeline_schedule, "combined-1f1b")},
                  {"excludes ", stage_flag,
                   ", because the layers of two microbatches alternate and would be gathered again "
                   "for every op"},
                  {"use ", &Parallel::zero_stage, " 2, or another schedule"})),
      when([](S s) { return stage(s) < 3; },
           refuse({is(&Parallel::outer_dp_sharding_strategy, "optim")},
                  {"needs sharded weights and several ",
                   &Parallel::num_distributed_optimizer_instances},
                  {"use ", &Parallel::zero_stage, " 3, or leave ",
                   &Parallel::outer_dp_sharding_strategy, " out"})),
      when([](S s) { return stage(s) == 3; },
           refuse({is(&Parallel::outer_dp_sharding_strategy, "optim"),
                   without(&Parallel::num_distributed_optimizer_instances)},
                  {"needs sharded weights and several ",
                   &Parallel::num_distributed_optimizer_instances},
                  {"add ", &Parallel::num_distributed_optimizer_instances, ", or leave ",
                   &Parallel::outer_dp_sharding_strategy, " out"})),
  };
  return rules;
}

}  // namespace megatron
