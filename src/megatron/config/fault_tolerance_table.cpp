// Declares the flags of section timeouts, as Megatron-LM and nvidia-resiliency-ext spell them.
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/settings_tables.h"

namespace megatron {

const FieldTable<FaultToleranceConfig>& fault_tolerance_table() {
  using Config = FaultToleranceConfig;
  return field_table<Config>([](auto& t) {
    t.group("Section timeouts").following().left_out_of_check();
    t.field("enable_ft_package", &Config::enable_ft_package,
            "end the run when a rank is longer in a section of it than the section's timeout, so "
            "that `megatron launch --max-restarts` starts it again; sections are setup, step and "
            "checkpointing")
        .alias("enable-ft-pipeline");
    t.field("ft_rank_section_timeouts", &Config::ft_rank_section_timeouts,
            "timeout of each section, in seconds; a section without one has no limit")
        .value_name("setup:600,step:180,checkpointing:420");
    t.field("ft_rank_out_of_section_timeout", &Config::ft_rank_out_of_section_timeout,
            "timeout of what lies between the sections, in seconds; none: no limit")
        .above(0);
    t.field("ft_num_warmup_iters", &Config::ft_num_warmup_iters,
            "steps at the beginning of a start, and of an evaluation, to which no timeout applies")
        .at_least(0);
    t.field("calc_ft_timeouts", &Config::calc_ft_timeouts,
            "compute the timeouts from the longest sections of all ranks, after each checkpoint "
            "and at the end, and keep them in ft_state.json in --save for later starts");
    t.field("ft_safety_factor", &Config::ft_safety_factor,
            "calculated timeout as a multiple of the longest section; it is at least 5 s")
        .at_least(1);
  });
}

}  // namespace megatron
