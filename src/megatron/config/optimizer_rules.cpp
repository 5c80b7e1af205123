// Rules on the optimizer, on its state, and on data types and loss scaling.
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

constexpr const char* kBf16Gradients = ": only bfloat16 weights may have bfloat16 gradients";

bool has_dynamic_scale(S s) {
  return s.training->fp16 && s.training->loss_scale.loss_scale.value_or(0) == 0;
}

}  // namespace

const Rules& optimizer_settings_rules() {
  static const Rules rules = {
      tunes({&Offload::optimizer_offload_fraction, &Offload::overlap_cpu_optimizer_d2h_h2d},
            &Offload::optimizer_cpu_offload),
      tunes({&Optimizer::adam_beta1, &Optimizer::adam_beta2, &Optimizer::adam_eps},
            is(&Optimizer::optimizer, "adam")),
      tunes({&Optimizer::qk_clip_alpha, &Optimizer::qk_clip_threshold}, &Optimizer::qk_clip),
      tunes({&Optimizer::sgd_momentum}, is(&Optimizer::optimizer, "sgd")),
  };
  return rules;
}

const Rules& precision_rules() {
  static const Condition small_states =
      any({valued(&Optimizer::exp_avg_dtype), valued(&Optimizer::exp_avg_sq_dtype),
           valued(&Optimizer::main_grads_dtype)});
  static const Rules rules = {
      excludes(&Training::bf16, &Training::fp16,
               {.fix = {"give one of the two; ", &Training::bf16, " needs no loss scale"}}),
      tunes({&Training::grad_reduce_in_bf16}, &Training::bf16, {.why = kBf16Gradients}),
      when(&Training::bf16,
           idle({&Training::accumulate_allreduce_grads_in_fp32}, &Training::grad_reduce_in_bf16)),
      note({valued(&LossScale::loss_scale), without(&Training::bf16), without(&Training::fp16)},
           "without effect in fp32, which needs no loss scaling"),
      note({&Model::attention_softmax_in_fp32},
           "without effect: the attention softmax is always computed in fp32"),
      when(has_dynamic_scale, at_most(&LossScale::initial_loss_scale, &LossScale::min_loss_scale)),
      tunes({&LossScale::initial_loss_scale, &LossScale::min_loss_scale,
             &LossScale::loss_scale_window, &LossScale::hysteresis},
            {has_dynamic_scale, "dynamic loss scale, as --fp16 has without --loss-scale"}),
      needs(small_states, &Optimizer::use_precision_aware_optimizer),
      needs(is(&Optimizer::main_grads_dtype, "bf16"), &Training::bf16, {.why = kBf16Gradients}),
      excludes(is(&Optimizer::main_grads_dtype, "bf16"),
               &Training::accumulate_allreduce_grads_in_fp32,
               {.why = ": both set the type of the gradients"}),
      refuse({&Optimizer::main_grads_error_feedback, without(&Optimizer::main_grads_dtype),
              without(&Training::grad_reduce_in_bf16)},
             "has no effect on fp32 gradients, which lose next to nothing",
             {"add ", &Optimizer::main_grads_dtype, " bf16, or leave it out"}),
      refuse({valued(&Optimizer::main_params_dtype)},
             "is not in this version: fp16 would lose small updates",
             {"leave ", &Optimizer::main_params_dtype, " out, so that main weights are fp32"}),
      needs(&Optimizer::use_precision_aware_optimizer, is(&Optimizer::optimizer, "adam")),
  };
  return rules;
}

}  // namespace megatron
