// Rules on the batches of a pipelined run, which can be checked once the number of ranks is known.
#pragma once

#include <cstdint>

#include "megatron/config/validate_settings.h"

namespace megatron {

struct Settings;

/// Checks the schedule against the number of microbatches of the first step. Returns no problems if
/// the layers are unknown, or if other pipeline flags are wrong, which validate_run() and
/// validate_model() report.
Problems check_pipeline_batches(const Settings& settings, std::int64_t num_microbatches);

/// Returns whether the schedule uses --microbatch-group-size-per-virtual-pipeline-stage.
bool has_microbatch_groups(const Settings& settings);

}  // namespace megatron
