// Collectives over small lists of host numbers, for what ranks agree on between steps. On an axis
// of one rank each is the identity.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// An axis, and the device whose transport carries the numbers over it.
struct ObjectGroup {
  const Axis& axis;
  c10::Device device;
};

/// Returns the maximum of each number over the axis. Collective over the axis.
std::vector<double> all_reduce_max(const ObjectGroup& group, std::vector<double> numbers,
                                   const char* what);
/// Returns the sum of each number over the axis. Collective over the axis.
std::vector<double> all_reduce_sum(const ObjectGroup& group, std::vector<double> numbers,
                                   const char* what);
/// Returns the numbers of every rank in rank order. Every rank must pass equally many. Collective
/// over the axis.
std::vector<std::vector<double>> all_gather_numbers(const ObjectGroup& group,
                                                    const std::vector<double>& numbers,
                                                    const char* what);

}  // namespace megatron
