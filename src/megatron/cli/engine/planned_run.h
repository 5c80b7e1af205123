// What the plans of one run's layout read: --memory and --checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "megatron/config/plan_options.h"
#include "megatron/config/settings.h"
#include "megatron/planner/plan_layouts.h"

namespace megatron {

struct PlannedRun {
  PlanOptions options;
  std::int64_t world_size;
  Settings settings;  ///< of the run on that many ranks
  const ModelFamily& family;
};

/// Throws UserError unless the flags are those of a run that fits its ranks.
inline PlannedRun read_planned_run(PlanMode mode, std::span<const std::string> args,
                                   const ModelFamilies& families) {
  PlanOptions options = read_plan(mode, args, families.names());
  check_memory_plan(options);
  const std::int64_t world_size = options.num_ranks();
  Settings settings = settings_with(options.run, mesh_sizes(*options.run.parallel), world_size);
  check_layout(settings, world_size).throw_if_any();
  const ModelFamily& family = find_model_family(options.model, families);
  return {std::move(options), world_size, std::move(settings), family};
}

}  // namespace megatron
