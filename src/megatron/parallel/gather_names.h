// Gathers the union of the names that each rank holds.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// Returns the names of all ranks, sorted and without duplicates. Names must not contain line
/// breaks. Collective over `axis`, whose transport must carry tensors of `device`.
std::vector<std::string> all_gather_unique_names(const Axis& axis,
                                                 const std::vector<std::string>& names,
                                                 c10::Device device = c10::kCPU);

}  // namespace megatron
