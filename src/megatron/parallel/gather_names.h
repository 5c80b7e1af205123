// The union of what ranks call their parts.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// The names (without line breaks) of all ranks, ascending, each once. Collective over `axis`,
/// whose transport carries tensors of `device`.
std::vector<std::string> all_gather_unique_names(const Axis& axis,
                                                 const std::vector<std::string>& names,
                                                 c10::Device device = c10::kCPU);

}  // namespace megatron
