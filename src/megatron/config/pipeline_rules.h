// What a pipeline asks of a run's batches: known once the number of ranks is.
#pragma once

#include <cstdint>

#include "megatron/config/validate_settings.h"

namespace megatron {

/// The rules that tie the schedule to the microbatches of the first step. Nothing while other flags
/// of the pipeline, which validate_run and validate_model name, are wrong, or the layers are not
/// known yet.
Problems check_pipeline_batches(const Settings& settings, std::int64_t num_microbatches);

/// Whether --microbatch-group-size-per-virtual-pipeline-stage means something to the schedule.
bool has_microbatch_groups(const Settings& settings);

}  // namespace megatron
