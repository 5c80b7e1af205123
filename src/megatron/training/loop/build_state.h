// Builds the model, the weights and the optimizer of a run, new or from a checkpoint.
#pragma once

#include <iosfwd>

#include "megatron/parallel/communicators.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;

struct BuildContext {
  Communicators* communicators = nullptr;  ///< null: single rank
  Timers& timers;
  StartupWarnings& warnings;
};

/// Fills `state` part by part, so that an out-of-memory report can show what it already holds when
/// memory ends. Prints Megatron's lines to `out`. UserError when the checkpoint cannot be loaded or
/// no batch or schedule fits. Collective over the world.
void build_state(const TrainingPlan& plan, TrainingState& state, const BuildContext& context,
                 std::ostream& out);

}  // namespace megatron
