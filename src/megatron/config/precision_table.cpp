// Declares the flags of mixed precision: types of weights, gradients and optimizer state, and loss
// scaling.
#include "megatron/config/loss_scale_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

constexpr std::string_view kArithmetic = "steps use another precision from now on";
constexpr double kLargestLossScale = 3e38;  ///< the scale is a float32

const FieldTable<LossScaleConfig>& loss_scale_table() {
  using Config = LossScaleConfig;
  return field_table<Config>([](auto& t) {
    t.following().left_out_of_check();
    t.field("loss_scale", &Config::loss_scale,
            "constant loss scale; none: dynamic with --fp16, else 1")
        .at_least(0);
    t.field("initial_loss_scale", &Config::initial_loss_scale, "initial dynamic loss scale")
        .above(0)
        .at_most(kLargestLossScale);
    t.field("min_loss_scale", &Config::min_loss_scale, "smallest dynamic loss scale")
        .above(0)
        .at_most(kLargestLossScale);
    t.field("loss_scale_window", &Config::loss_scale_window,
            "number of steps with finite gradients after which the loss scale doubles")
        .between(1, kMaxSize);
    t.field("hysteresis", &Config::hysteresis,
            "number of steps with non-finite gradients after which the loss scale halves")
        .between(1, kMaxSize);
  });
}

}  // namespace

void add_precision_fields(FieldTable<TrainingConfig>& table) {
  using Config = TrainingConfig;
  table.group("Precision");
  table.field("bf16", &Config::bf16, "compute in bfloat16, with main weights and gradients in fp32")
      .breaks_resume(kArithmetic)
      .left_out_of_check("--bf16 (float64 is used)");
  table
      .field("fp16", &Config::fp16,
             "compute in float16 with loss scaling, with main weights and gradients in fp32")
      .breaks_resume(kArithmetic)
      .left_out_of_check("--fp16 (float64 is used)");
  table
      .field("accumulate_allreduce_grads_in_fp32", &Config::accumulate_allreduce_grads_in_fp32,
             "accumulate and reduce gradients in fp32; this is the default unless "
             "--grad-reduce-in-bf16 is given")
      .alias("grad-reduce-in-fp32");
  table.field("grad_reduce_in_bf16", &Config::grad_reduce_in_bf16,
              "accumulate and reduce gradients in bfloat16, with --bf16");
  table.include(&Config::loss_scale, loss_scale_table());
}

void add_precision_fields(FieldTable<OptimizerConfig>& table) {
  using Config = OptimizerConfig;
  table.group("Optimizer").following().left_out_of_check();
  table
      .field("use_precision_aware_optimizer", &Config::use_precision_aware_optimizer,
             "allow types other than fp32 for Adam's moments, main gradients and main weights")
      .left_out_of_check("--use-precision-aware-optimizer");
  const std::vector<std::string> states{"fp32", "bf16", "fp16", "int8", "fp8"};
  table
      .field(
          "exp_avg_dtype", &Config::exp_avg_dtype,
          "type of Adam's first moment; fp16, int8 and fp8 (E4M3) have a scale for each block of "
          "256 elements")
      .choices(states);
  table
      .field("exp_avg_sq_dtype", &Config::exp_avg_sq_dtype,
             "type of Adam's second moment, as --exp-avg-dtype")
      .choices(states);
  table.field("main_grads_dtype", &Config::main_grads_dtype, "type of the main gradients")
      .choices({"fp32", "bf16"});
  table.field(
      "main_grads_error_feedback", &Config::main_grads_error_feedback,
      "keep what rounding bf16 main gradients lost, in one more byte an element, so that the "
      "sum over microbatches is as exact as in fp32 until it is rounded once");
  table.field("main_params_dtype", &Config::main_params_dtype, "type of the main weights")
      .choices({"fp32", "fp16"});
}

}  // namespace megatron
