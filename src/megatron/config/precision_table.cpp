// The flags of 16-bit training: types of weights, gradients and optimizer states, and the scaling
// of the loss.
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

const FieldTable<LossScaleConfig>& loss_scale_table() {
  using Config = LossScaleConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.field("loss_scale", &Config::loss_scale,
            "constant factor on the loss; none: dynamic with --fp16, 1 without")
        .at_least(0);
    t.field("initial_loss_scale", &Config::initial_loss_scale, "first dynamic loss scale").above(0);
    t.field("min_loss_scale", &Config::min_loss_scale, "least dynamic loss scale").above(0);
    t.field("loss_scale_window", &Config::loss_scale_window,
            "steps with finite gradients after which the loss scale doubles")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("hysteresis", &Config::hysteresis,
            "steps with infinite gradients after which the loss scale halves")
        .at_least(1)
        .at_most(kMaxSize);
    return t;
  }();
  return table;
}

}  // namespace

void add_precision_fields(FieldTable<TrainingConfig>& table) {
  using Config = TrainingConfig;
  table.group("Precision");
  table.field("bf16", &Config::bf16,
              "weights and activations in bfloat16, main weights and gradients in fp32");
  table.field(
      "fp16", &Config::fp16,
      "weights and activations in float16 with a scaled loss, main weights and gradients in fp32");
  table.field("accumulate_allreduce_grads_in_fp32", &Config::accumulate_allreduce_grads_in_fp32,
              "main gradients in fp32; always so unless --grad-reduce-in-bf16");
  table.field("grad_reduce_in_bf16", &Config::grad_reduce_in_bf16,
              "main gradients in bfloat16, with --bf16");
  table.include(&Config::loss_scale, loss_scale_table());
}

void add_precision_fields(FieldTable<OptimizerConfig>& table) {
  using Config = OptimizerConfig;
  table.group("Optimizer");
  table.field("use_precision_aware_optimizer", &Config::use_precision_aware_optimizer,
              "let Adam's states and main gradients have fewer bits");
  const std::vector<std::string> states{"fp32", "bf16", "fp16", "fp8"};
  table.field("exp_avg_dtype", &Config::exp_avg_dtype, "type of Adam's first moment")
      .choices(states);
  table.field("exp_avg_sq_dtype", &Config::exp_avg_sq_dtype, "type of Adam's second moment")
      .choices(states);
  table.field("main_grads_dtype", &Config::main_grads_dtype, "type of the main gradients")
      .choices({"fp32", "bf16"});
  table.field("main_params_dtype", &Config::main_params_dtype, "type of the main weights")
      .choices({"fp32", "fp16"});
}

}  // namespace megatron
