// Rules on section timeouts.
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/section_timeouts.h"

namespace megatron {

using namespace rules;

const Rules& fault_tolerance_rules() {
  static const Rules rules = {
      reported([](S s) { return section_timeouts_mistake(*s.fault_tolerance); },
               {&FaultTolerance::ft_rank_section_timeouts}),
      tunes({&FaultTolerance::ft_rank_section_timeouts,
             &FaultTolerance::ft_rank_out_of_section_timeout, &FaultTolerance::ft_num_warmup_iters,
             &FaultTolerance::calc_ft_timeouts},
            &FaultTolerance::enable_ft_package),
      refuse({&FaultTolerance::calc_ft_timeouts, without(&Checkpoint::save)},
             {"keeps the timeouts in the folder of ", &Checkpoint::save, ", which is not given"},
             {"add ", &Checkpoint::save, ", or give ", &FaultTolerance::ft_rank_section_timeouts}),
      tunes({&FaultTolerance::ft_safety_factor}, &FaultTolerance::calc_ft_timeouts),
  };
  return rules;
}

}  // namespace megatron
