// Checks that data-parallel replicas hold the same weights.
#pragma once

#include "megatron/params/param_store.h"

namespace megatron {

/// Compares checksums of every weight, and of its float32 form where layers read that, over
/// data_parallel().all and that of experts. On a mismatch all ranks throw a UserError that names
/// the parameters and the ranks that differ from the first. Collective over data_parallel().all.
void check_replicas(const ParamStore& store);

}  // namespace megatron
