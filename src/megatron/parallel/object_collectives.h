// Collectives over host strings, such as names, manifests and error messages.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// Returns the text of every rank in rank order. Collective over `axis`, whose transport must carry
/// tensors of `device`.
std::vector<std::string> all_gather_strings(const Axis& axis, const std::string& text,
                                            c10::Device device = c10::kCPU);

/// Returns the texts of rank 0 and ignores those of the other ranks. Collective over `axis`, whose
/// transport must carry tensors of `device`.
std::vector<std::string> broadcast_strings(const Axis& axis, const std::vector<std::string>& texts,
                                           c10::Device device = c10::kCPU);

}  // namespace megatron
