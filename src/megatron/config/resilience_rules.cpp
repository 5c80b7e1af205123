// Rules on section timeouts and on result validation.
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/rerun_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/section_timeouts.h"
#include "megatron/config/training_config.h"

namespace megatron {

using namespace rules;

const Rules& resilience_rules() {
  static const Rules rules = {
      reported([](S s) { return section_timeouts_mistake(*s.fault_tolerance); },
               {&FaultTolerance::ft_rank_section_timeouts}),
      tunes({&FaultTolerance::ft_rank_section_timeouts,
             &FaultTolerance::ft_rank_out_of_section_timeout, &FaultTolerance::ft_num_warmup_iters,
             &FaultTolerance::calc_ft_timeouts},
            &FaultTolerance::enable_ft_package),
      refuse({&FaultTolerance::calc_ft_timeouts, &FaultTolerance::enable_ft_package,
              without(&Checkpoint::save)},
             {"keeps the timeouts in the folder of ", &Checkpoint::save, ", which is not given"},
             {"add ", &Checkpoint::save, ", or give ", &FaultTolerance::ft_rank_section_timeouts}),
      tunes({&FaultTolerance::ft_safety_factor}, &FaultTolerance::calc_ft_timeouts),
      idle({&Rerun::check_for_spiky_loss, &Rerun::check_for_large_grads},
           is(&Rerun::rerun_mode, "disabled"),
           {.fix = {"use ", &Rerun::rerun_mode, " validate_results"}}),
      tunes({&Rerun::error_injection_rate}, is(&Rerun::rerun_mode, "validate_results")),
      note({&Rerun::error_injection_rate, &Training::check_for_nan_in_loss_and_grad,
            without(&Rerun::check_for_spiky_loss), without(&Rerun::check_for_large_grads)},
           "without effect: no result is checked"),
  };
  return rules;
}

}  // namespace megatron
