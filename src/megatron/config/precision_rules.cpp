// Rules on data types and loss scaling.
#include "megatron/config/optimizer_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using S = const Settings&;

bool has_16_bits(S s) { return s.training->bf16 || s.training->fp16; }
bool has_constant_scale(S s) { return s.training->loss_scale.loss_scale.value_or(0) > 0; }
bool is_mixed(S s) {
  return s.optimizer->exp_avg_dtype != "fp32" || s.optimizer->exp_avg_sq_dtype != "fp32";
}

const std::vector<Rule>& number_rules() {
  static const std::vector<Rule> rules = {
      {{"bf16", "fp16"},
       [](S s) { return s.training->bf16 && s.training->fp16; },
       [](S) {
         return UserError::Parts{"--bf16", "excludes --fp16",
                                 "give one of the two; --bf16 needs no loss scale"};
       }},
      {{"grad_reduce_in_bf16", "bf16"},
       [](S s) { return s.training->grad_reduce_in_bf16 && !s.training->bf16; },
       [](S) {
         return UserError::Parts{"--grad-reduce-in-bf16",
                                 "needs --bf16: only bfloat16 weights may have bfloat16 gradients",
                                 "add --bf16, or leave --grad-reduce-in-bf16 out"};
       }},
      {{"grad_reduce_in_bf16", "accumulate_allreduce_grads_in_fp32"},
       [](S s) {
         return s.training->grad_reduce_in_bf16 && s.training->accumulate_allreduce_grads_in_fp32;
       },
       [](S) {
         return UserError::Parts{"--grad-reduce-in-bf16",
                                 "excludes --accumulate-allreduce-grads-in-fp32",
                                 "give one of the two"};
       }},
  };
  return rules;
}

const std::vector<Rule>& loss_scale_rules() {
  static const std::vector<Rule> rules = {
      {{"loss_scale", "bf16", "fp16"},
       [](S s) {
         return has_constant_scale(s) && *s.training->loss_scale.loss_scale != 1 && !has_16_bits(s);
       },
       [](S s) {
         return UserError::Parts{
             "--loss-scale",
             detail::concatenate(*s.training->loss_scale.loss_scale,
                                 " has no effect in fp32, which needs no loss scaling"),
             "add --fp16, or leave --loss-scale out"};
       }},
      {{"initial_loss_scale", "min_loss_scale"},
       [](S s) {
         return s.training->loss_scale.min_loss_scale > s.training->loss_scale.initial_loss_scale;
       },
       [](S s) {
         return UserError::Parts{"--min-loss-scale",
                                 detail::concatenate(s.training->loss_scale.min_loss_scale,
                                                     " is above --initial-loss-scale ",
                                                     s.training->loss_scale.initial_loss_scale),
                                 "lower --min-loss-scale"};
       }},
  };
  return rules;
}

const std::vector<Rule>& optimizer_state_rules() {
  static const std::vector<Rule> rules = {
      {{"use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype"},
       [](S s) { return is_mixed(s) && !s.optimizer->use_precision_aware_optimizer; },
       [](S s) {
         return UserError::Parts{"--exp-avg-dtype " + s.optimizer->exp_avg_dtype +
                                     " --exp-avg-sq-dtype " + s.optimizer->exp_avg_sq_dtype,
                                 "states below fp32 need --use-precision-aware-optimizer",
                                 "add --use-precision-aware-optimizer"};
       }},
      {{"use_precision_aware_optimizer", "main_grads_dtype"},
       [](S s) {
         return s.optimizer->main_grads_dtype != "fp32" &&
                !s.optimizer->use_precision_aware_optimizer;
       },
       [](S s) {
         return UserError::Parts{"--main-grads-dtype " + s.optimizer->main_grads_dtype,
                                 "needs --use-precision-aware-optimizer",
                                 "add --use-precision-aware-optimizer"};
       }},
      {{"bf16", "main_grads_dtype"},
       [](S s) { return s.optimizer->main_grads_dtype == "bf16" && !s.training->bf16; },
       [](S) {
         return UserError::Parts{"--main-grads-dtype bf16",
                                 "needs --bf16: only bfloat16 weights may have bfloat16 gradients",
                                 "add --bf16"};
       }},
      {{"accumulate_allreduce_grads_in_fp32", "main_grads_dtype"},
       [](S s) {
         return s.optimizer->main_grads_dtype == "bf16" &&
                s.training->accumulate_allreduce_grads_in_fp32;
       },
       [](S) {
         return UserError::Parts{
             "--main-grads-dtype bf16",
             "excludes --accumulate-allreduce-grads-in-fp32: both set the type of the gradients",
             "give one of the two"};
       }},
      {{"main_grads_error_feedback", "main_grads_dtype", "grad_reduce_in_bf16"},
       [](S s) {
         return s.optimizer->main_grads_error_feedback && s.optimizer->main_grads_dtype == "fp32" &&
                !s.training->grad_reduce_in_bf16;
       },
       [](S) {
         return UserError::Parts{"--main-grads-error-feedback",
                                 "has no effect on fp32 gradients, which lose next to nothing",
                                 "add --main-grads-dtype bf16, or leave it out"};
       }},
      {{"main_params_dtype"},
       [](S s) { return s.optimizer->main_params_dtype != "fp32"; },
       [](S s) {
         return UserError::Parts{"--main-params-dtype " + s.optimizer->main_params_dtype,
                                 "is not in this version: fp16 would lose small updates",
                                 "leave --main-params-dtype out, so that main weights are fp32"};
       }},
      {{"optimizer", "use_precision_aware_optimizer"},
       [](S s) {
         return s.optimizer->use_precision_aware_optimizer && s.optimizer->optimizer != "adam";
       },
       [](S s) {
         return UserError::Parts{"--use-precision-aware-optimizer",
                                 "has no effect with --optimizer " + s.optimizer->optimizer,
                                 "use --optimizer adam"};
       }},
  };
  return rules;
}

}  // namespace

Problems validate_precision(const Settings& settings, const FieldNames& skip) {
  Problems problems;
  for (const auto* rules : {&number_rules(), &loss_scale_rules(), &optimizer_state_rules()})
    problems.add(evaluate(*rules, settings, skip));
  return problems;
}

}  // namespace megatron
