// Implements `megatron checkpoint inspect|verify|diff|gc`.
#include <iostream>
#include <nlohmann/json.hpp>

#include "megatron/checkpoint/collect_garbage.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/checkpoint_options.h"

namespace megatron {
int run_checkpoint(std::span<const std::string> args, const ModelFamilies& /*families*/) {
  const CheckpointOptions options = read_checkpoint_options(args);
  if (options.action == "verify") {
    verify_checkpoints(options.folders[0], options.all, std::cout);
  } else if (options.action == "diff") {
    std::cout << difference_text(diff_checkpoints(options.folders[0], options.folders[1]));
  } else if (options.action == "gc") {
    collect_garbage(options.folders[0], {.keep = options.keep, .is_dry_run = options.dry_run},
                    std::cout);
  } else {
    const Json inspection = inspect_checkpoint(options.folders[0]);
    std::cout << (options.json ? inspection.dump(2) + "\n" : inspection_text(inspection));
  }
  return 0;
}

}  // namespace megatron
