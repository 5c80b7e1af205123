// Measures the memory of a process that trains the smallest model: the program, its libraries and
// what they allocate by themselves. `megatron plan --memory` adds the model to it.
#pragma once

#include <cstdint>

#include "megatron/planner/predict_memory_table.h"

namespace megatron {

struct Settings;

/// Runs `megatron pretrain` on a model of one layer with the dtype of `settings`, as one of
/// `num_ranks` ranks of this host, and returns what it measures (--log-memory). Takes about a
/// second. Throws UserError if the program does not run.
HostBaseline probe_memory(const Settings& settings, std::int64_t num_ranks);

}  // namespace megatron
