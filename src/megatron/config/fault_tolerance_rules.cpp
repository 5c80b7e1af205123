// Rules on section timeouts.
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/section_timeouts.h"
#include "megatron/config/settings.h"

namespace megatron {
namespace {

using S = const Settings&;

UserError::Parts needs_package(const std::string& flag) {
  return needs_flag(flag, "--enable-ft-package");
}

}  // namespace

const std::vector<Rule>& fault_tolerance_rules() {
  static const FaultToleranceConfig defaults;
  static const std::vector<Rule> rules = {
      {{"ft_rank_section_timeouts"},
       [](S s) { return section_timeouts_mistake(*s.fault_tolerance).has_value(); },
       [](S s) { return *section_timeouts_mistake(*s.fault_tolerance); }},
      {{"ft_rank_section_timeouts", "enable_ft_package"},
       [](S s) {
         return !s.fault_tolerance->enable_ft_package &&
                !s.fault_tolerance->ft_rank_section_timeouts.empty();
       },
       [](S) { return needs_package("--ft-rank-section-timeouts"); }},
      {{"ft_rank_out_of_section_timeout", "enable_ft_package"},
       [](S s) {
         return !s.fault_tolerance->enable_ft_package &&
                s.fault_tolerance->ft_rank_out_of_section_timeout.has_value();
       },
       [](S) { return needs_package("--ft-rank-out-of-section-timeout"); }},
      {{"ft_num_warmup_iters", "enable_ft_package"},
       [](S s) {
         return !s.fault_tolerance->enable_ft_package &&
                s.fault_tolerance->ft_num_warmup_iters != defaults.ft_num_warmup_iters;
       },
       [](S) { return needs_package("--ft-num-warmup-iters"); }},
      {{"calc_ft_timeouts", "enable_ft_package"},
       [](S s) {
         return !s.fault_tolerance->enable_ft_package && s.fault_tolerance->calc_ft_timeouts;
       },
       [](S) { return needs_package("--calc-ft-timeouts"); }},
      {{"calc_ft_timeouts", "save"},
       [](S s) { return s.fault_tolerance->calc_ft_timeouts && s.checkpoint->save.empty(); },
       [](S) {
         return UserError::Parts{"--calc-ft-timeouts",
                                 "keeps the timeouts in the folder of --save, which is not given",
                                 "add --save, or give --ft-rank-section-timeouts"};
       }},
      {{"ft_safety_factor", "calc_ft_timeouts"},
       [](S s) {
         return !s.fault_tolerance->calc_ft_timeouts &&
                s.fault_tolerance->ft_safety_factor != defaults.ft_safety_factor;
       },
       [](S) { return needs_flag("--ft-safety-factor", "--calc-ft-timeouts"); }}};
  return rules;
}

}  // namespace megatron
