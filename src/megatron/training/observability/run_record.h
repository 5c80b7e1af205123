// Builds the record at the head of a run's metrics: settings, size and machine. `megatron report`
// shows it.
#pragma once

#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/datasets/data_report.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;

/// Returns {"iteration": …, "run": {"started": …, "machine": …, "parameters": …, "settings": {…}}}.
/// Setting values are text in Python's notation; "parameters" counts the whole model. Collective
/// over the model's ranks.
JsonText run_record(const TrainingPlan& plan, const TrainingState& state,
                    const std::vector<SplitShare>& data);

}  // namespace megatron
