// Chooses where offloaded optimizer state lies: a file of --offload-folder, or the memory of a
// GPU's host.
#pragma once

#include <iosfwd>

#include "megatron/optimizer/state_offload.h"
#include "megatron/training/run/startup_warnings.h"

namespace megatron {

struct TrainingPlan;

/// Returns the options of the run. Throws a UserError if a run on a CPU names no folder, or the
/// folder cannot be used; warns if it is itself in memory.
StateOffloadOptions optimizer_offload(const TrainingPlan& plan, StartupWarnings& warnings,
                                      std::ostream& out);

}  // namespace megatron
