// The microbatches of hybrid context parallelism (schedules/hybrid_context_schedule.h).
#pragma once

#include <memory>

#include "megatron/training/feeding/dataset_source.h"

namespace megatron {

/// Returns this rank's microbatches; make_dataset_source() prefetches them.
std::unique_ptr<MicrobatchSource> make_hybrid_context_source(
    const std::shared_ptr<const Dataset>& dataset, const DatasetSourceOptions& options);

}  // namespace megatron
