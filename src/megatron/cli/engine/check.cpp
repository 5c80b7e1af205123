// Implements `megatron check`: compares a layout with one rank.
#include <iostream>

#include "megatron/cli/engine/engine.h"
#include "megatron/config/check_options.h"
#include "megatron/training/layout_check/check_report.h"

namespace megatron {

int run_check(std::span<const std::string> args) {
  const CheckedRun checked = read_check(args);
  const ScaledRun scaled =
      scale_run(checked.run, checked.options.world_size, checked.options.max_ranks);
  const LayoutCheckResult result = check_layout(scaled);
  std::cout << (checked.options.json ? check_json(scaled, result) : check_report(scaled, result))
            << std::flush;
  return result.agrees() ? 0 : 1;
}

}  // namespace megatron
