// Rules on what data-parallel ranks divide among them: the stages of ZeRO, FSDP and HSDP.
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using S = const Settings&;

int stage(S s) { return zero_stage(*s.parallel); }

/// Returns the stage that --use-torch-fsdp2 stands for.
int torch_stage(S s) { return s.parallel->torch_fsdp2_reshard_after_forward ? 3 : 2; }

constexpr const char* kNeedsSharding =
    "needs sharded gradients or weights: --use-megatron-fsdp, or --zero-stage 2 or 3";

const std::vector<Rule>& contradictions() {
  static const std::vector<Rule> rules = {
      {{"zero_stage", "data_parallel_sharding_strategy"},
       [](S s) {
         const std::string& strategy = s.parallel->data_parallel_sharding_strategy;
         return s.parallel->zero_stage && !strategy.empty() &&
                *s.parallel->zero_stage != stage_of_strategy(strategy);
       },
       [](S s) {
         const std::string& strategy = s.parallel->data_parallel_sharding_strategy;
         return UserError::Parts{"--zero-stage " + text_of(*s.parallel->zero_stage),
                                 "contradicts --data-parallel-sharding-strategy " + strategy +
                                     ", which is stage " + text_of(stage_of_strategy(strategy)),
                                 "give one of the two"};
       }},
      {{"zero_stage", "data_parallel_sharding_strategy", "use_distributed_optimizer"},
       [](S s) { return s.parallel->use_distributed_optimizer && stage(s) == 0; },
       [](S s) {
         return UserError::Parts{
             "--use-distributed-optimizer",
             "contradicts " + stage_flag(*s.parallel) + ", which shards nothing",
             "leave one of the two out"};
       }},
      {{"zero_stage", "use_megatron_fsdp"},
       [](S s) { return s.parallel->use_megatron_fsdp && s.parallel->zero_stage == 0; },
       [](S) {
         return UserError::Parts{"--use-megatron-fsdp",
                                 "shards the weights and contradicts --zero-stage 0",
                                 "leave one of the two out"};
       }},
      {{"use_megatron_fsdp", "use_torch_fsdp2"},
       [](S s) { return s.parallel->use_megatron_fsdp && s.parallel->use_torch_fsdp2; },
       [](S) {
         return UserError::Parts{"--use-torch-fsdp2", "excludes --use-megatron-fsdp",
                                 "give one of the two"};
       }},
      {{"use_torch_fsdp2", "torch_fsdp2_reshard_after_forward", "zero_stage",
        "data_parallel_sharding_strategy"},
       [](S s) { return s.parallel->use_torch_fsdp2 && stage(s) != torch_stage(s); },
       [](S s) {
         return UserError::Parts{"--use-torch-fsdp2",
                                 "is stage " + text_of(torch_stage(s)) +
                                     " of ZeRO here and contradicts " + stage_flag(*s.parallel),
                                 "give one of the two"};
       }},
      {{"use_torch_fsdp2", "torch_fsdp2_reshard_after_forward"},
       [](S s) {
         return !s.parallel->use_torch_fsdp2 && !s.parallel->torch_fsdp2_reshard_after_forward;
       },
       [](S) {
         return UserError::Parts{"--torch-fsdp2-no-reshard-after-forward",
                                 "needs --use-torch-fsdp2", "add --use-torch-fsdp2"};
       }},
  };
  return rules;
}

const std::vector<Rule>& limits() {
  static const std::vector<Rule> rules = {
      {{"suggested_communication_unit_size"},
       [](S s) { return s.parallel->suggested_communication_unit_size && stage(s) < 2; },
       [](S) {
         return UserError::Parts{"--suggested-communication-unit-size", kNeedsSharding,
                                 "add one, or leave it out"};
       }},
      {{"ddp_grad_compression"},
       [](S s) { return s.parallel->ddp_grad_compression != "none" && stage(s) > 1; },
       [](S s) {
         return UserError::Parts{
             "--ddp-grad-compression " + s.parallel->ddp_grad_compression,
             "excludes " + stage_flag(*s.parallel) +
                 ", which reduces the gradients of each microbatch",
             "use --grad-reduce-in-bf16, or stage 1 (--use-distributed-optimizer)"};
       }},
      {{"main_grads_error_feedback"},
       [](S s) { return s.optimizer->main_grads_error_feedback && stage(s) > 1; },
       [](S s) {
         return UserError::Parts{
             "--main-grads-error-feedback",
             "excludes " + stage_flag(*s.parallel) + ", which keeps no whole gradients to add to",
             "leave it out, or use stage 1 (--use-distributed-optimizer)"};
       }},
      {{"optimizer"},
       [](S s) { return s.optimizer->optimizer == "adafactor" && stage(s) > 1; },
       [](S s) {
         return UserError::Parts{
             "--optimizer adafactor",
             "excludes " + stage_flag(*s.parallel) + ", which divides matrices among ranks",
             "use stage 1 (--use-distributed-optimizer), or --optimizer adam"};
       }},
      {{"pipeline_schedule"},
       [](S s) { return s.parallel->pipeline_schedule == "combined-1f1b" && stage(s) == 3; },
       [](S s) {
         return UserError::Parts{
             "--pipeline-schedule combined-1f1b",
             "excludes " + stage_flag(*s.parallel) +
                 ", because the layers of two microbatches alternate and would be gathered again "
                 "for every op",
             "use --zero-stage 2, or another schedule"};
       }},
      {{"outer_dp_sharding_strategy", "num_distributed_optimizer_instances"},
       [](S s) {
         return s.parallel->outer_dp_sharding_strategy == "optim" &&
                (stage(s) < 3 || s.parallel->num_distributed_optimizer_instances == 1);
       },
       [](S s) {
         return UserError::Parts{
             "--outer-dp-sharding-strategy optim",
             "needs sharded weights and several --num-distributed-optimizer-instances",
             std::string(stage(s) < 3 ? "use --zero-stage 3"
                                      : "add --num-distributed-optimizer-instances") +
                 ", or leave --outer-dp-sharding-strategy out"};
       }},
  };
  return rules;
}

}  // namespace

const std::vector<Rule>& zero_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = contradictions();
    all.insert(all.end(), limits().begin(), limits().end());
    return all;
  }();
  return rules;
}

}  // namespace megatron
