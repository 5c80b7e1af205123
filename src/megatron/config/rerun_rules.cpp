// Rules on result validation.
#include "megatron/config/rerun_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"

namespace megatron {

Problems validate_reruns(const Settings& settings, const FieldNames& skip) {
  using namespace rules;
  static const Rules list = {
      idle({&Rerun::check_for_spiky_loss, &Rerun::check_for_large_grads},
           is(&Rerun::rerun_mode, "disabled"),
           {.fix = {"use ", &Rerun::rerun_mode, " validate_results"}}),
      refuse({&Rerun::error_injection_rate, without(is(&Rerun::rerun_mode, "validate_results"))},
             {"has no effect with ", with_value(&Rerun::rerun_mode)},
             {"use ", &Rerun::rerun_mode, " validate_results"}),
      refuse({&Rerun::error_injection_rate, &Training::check_for_nan_in_loss_and_grad,
              without(&Rerun::check_for_spiky_loss), without(&Rerun::check_for_large_grads)},
             "has no effect because no result is checked",
             {"leave ", off(&Training::check_for_nan_in_loss_and_grad), " out, or add ",
              &Rerun::check_for_spiky_loss}),
  };
  return evaluate(list, settings, skip);
}

}  // namespace megatron
