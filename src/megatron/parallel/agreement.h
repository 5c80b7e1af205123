// What ranks tell each other between steps: numbers of the host, in a few bytes. Identities on an
// axis of one rank.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// Where the host's numbers lie while they travel: the device whose transport the axis has.
struct ObjectGroup {
  const Axis& axis;
  c10::Device device;
};

/// The largest of each number over the axis. Collective over it.
std::vector<double> all_reduce_max(const ObjectGroup& group, std::vector<double> numbers,
                            const char* what);
/// The sums of each number over the axis. Collective over it.
std::vector<double> all_reduce_sum(const ObjectGroup& group, std::vector<double> numbers, const char* what);
/// Every rank's numbers (as many on each), in rank order. Collective over the axis.
std::vector<std::vector<double>> all_gather_numbers(const ObjectGroup& group,
                                          const std::vector<double>& numbers, const char* what);

}  // namespace megatron
