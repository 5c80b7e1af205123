// The settings of the timeouts of a run's sections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

/// Timeouts of the sections of a run (training/resilience/section_watch.h).
struct FaultToleranceConfig {
  bool enable_ft_package = false, calc_ft_timeouts = false;
  std::int64_t ft_num_warmup_iters = 5;
  std::string ft_rank_section_timeouts;                  ///< see config/section_timeouts.h
  std::optional<double> ft_rank_out_of_section_timeout;  ///< seconds; nullopt: no limit
  double ft_safety_factor = 5;
};

}  // namespace megatron
