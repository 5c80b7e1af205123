// Checks that data-parallel replicas hold the same weights.
#pragma once

#include "megatron/params/param_store.h"

namespace megatron {

/// Compares checksums of every weight, and of its float32 form where layers read that, over
/// data_parallel().all and that of experts. On a mismatch the ranks of that axis throw a
/// HardwareError that names the parameters and the ranks that differ from the majority, or all
/// ranks when no value has one; the ranks of other axes find out when they next communicate.
/// Collective over these axes.
void check_replicas(const ParamStore& store);

}  // namespace megatron
