// Builds the record at the head of a run's metrics: settings, size and machine. `megatron report`
// shows it.
#pragma once

#include "megatron/base/json.h"
#include "megatron/training/loop/trainer.h"

namespace megatron {

/// Returns {"iteration": …, "run": {"started": …, "machine": …, "parameters": …, "settings": {…}}}.
/// Setting values are text in Python's notation; "parameters" counts the whole model. Collective
/// over the model's ranks.
OrderedJson run_record(const Trainer& trainer);

}  // namespace megatron
