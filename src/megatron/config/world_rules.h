// Rules on the number of ranks, which can be checked once the launcher has set the world size.
#pragma once

#include "megatron/config/mesh_sizes.h"
#include "megatron/config/validate_settings.h"

namespace megatron {

struct Settings;

/// Checks that parallel degrees, batches and optimizer instances fit `world_size` ranks. Leaves out
/// rules on a field in `skip` and problems that validate_run() reports. Call it before resolve().
Problems check_world(const Settings& settings, std::int64_t world_size,
                     const FieldNames& skip = {});

/// Returns the data-parallel size. Requires settings that check_world() accepts.
std::int64_t data_parallel_size(const Settings& settings, std::int64_t world_size);

}  // namespace megatron
