// What a run asks of the number of ranks: known only once a launcher has said how many there are.
#pragma once

#include "megatron/config/mesh_sizes.h"
#include "megatron/config/validate_settings.h"

namespace megatron {

/// The rules that tie degrees, batches and optimizer instances to a world of `world_size` ranks;
/// those on a field in `skip` are left out, and so is what validate_run says already. Call before
/// resolve().
Problems check_world(const Settings& settings, std::int64_t world_size,
                     const FieldNames& skip = {});

/// The data-parallel ranks of a world that check_world accepts.
inline std::int64_t data_parallel_size(const Settings& settings, std::int64_t world_size) {
  return data_parallel_size(mesh_sizes(settings.parallel), world_size);
}

}  // namespace megatron
