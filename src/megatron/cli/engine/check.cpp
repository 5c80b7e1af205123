// Implements `megatron check`: compares a layout with one rank.
#include <iostream>

#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/check_options.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/comm.h"
#include "megatron/training/layout_check/layout_check.h"

namespace megatron {

int run_check(std::span<const std::string> args, const ModelFamilies& families) {
  const CheckedRun checked = read_check(args, families.names());
  ScaledRun scaled = scale_run(checked.run, checked.options.world_size, checked.options.max_ranks);
  leave_out_unmatched_names(scaled, find_model_family(scaled.run.options.model, families));
  LayoutCheckResult result;
  try {
    result = check_layout(scaled, {.families = &families});
  } catch (const CommError& error) {
    // Ranks make different calls, or one does not come: that is a wrong layout too.
    if (checked.options.json)
      std::cout << JsonText{{"agrees", false}, {"error", error.what()}}.dump() << std::endl;
    else
      std::cout << "wrong: the ranks do not communicate alike: " << error.what() << std::endl;
    return 1;
  }
  std::cout << (checked.options.json ? check_json(scaled, result) : check_report(scaled, result))
            << std::flush;
  return result.agrees() ? 0 : 1;
}

}  // namespace megatron
