// What each start of a run leaves at the head of its metrics: settings, size, machine. `megatron
// report` shows it.
#pragma once

#include "megatron/base/json.h"
#include "megatron/training/loop/trainer.h"

namespace megatron {

/// {"iteration": …, "run": {"started": …, "machine": …, "parameters": …, "settings": {…}}}; values
/// of settings are text in Python's spelling, parameters those of the whole model. Collective over
/// the model's ranks.
OrderedJson run_record(const Trainer& trainer);

}  // namespace megatron
