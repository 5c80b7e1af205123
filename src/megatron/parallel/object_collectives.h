// Every rank's text on every rank: names, manifests, messages of errors.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// The texts in the order of ranks. Collective over `axis`, whose transport carries tensors of
/// `device`.
std::vector<std::string> all_gather_strings(const Axis& axis, const std::string& text,
                                            c10::Device device = c10::kCPU);

/// The texts of rank 0; those of the others are not looked at. Collective over `axis`, as
/// all_gather_strings.
std::vector<std::string> broadcast_strings(const Axis& axis, const std::vector<std::string>& texts,
                                           c10::Device device = c10::kCPU);

}  // namespace megatron
