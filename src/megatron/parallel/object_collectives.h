// Collectives over objects of the host: numbers that ranks agree on between steps, and strings such
// as names, manifests and error messages. On an axis of one rank each is the identity.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// An axis, and the device whose transport carries the objects over it.
struct ObjectGroup {
  const Axis& axis;
  c10::Device device = c10::kCPU;
};

/// Returns the maximum of each number over the axis. Collective over the axis.
std::vector<double> all_reduce_max(const ObjectGroup& group, std::vector<double> numbers,
                                   const char* what);
/// Returns the sum of each number over the axis. Collective over the axis.
std::vector<double> all_reduce_sum(const ObjectGroup& group, std::vector<double> numbers,
                                   const char* what);
/// Returns the numbers of rank 0. Every rank must pass equally many. Collective over the axis.
std::vector<double> broadcast_numbers(const ObjectGroup& group, std::vector<double> numbers,
                                      const char* what);
/// Returns the numbers of every rank in rank order. Every rank must pass equally many. Collective
/// over the axis.
std::vector<std::vector<double>> all_gather_numbers(const ObjectGroup& group,
                                                    const std::vector<double>& numbers,
                                                    const char* what);
std::vector<std::vector<std::int64_t>> all_gather_numbers(const ObjectGroup& group,
                                                          const std::vector<std::int64_t>& numbers,
                                                          const char* what);

/// Returns the text of every rank in rank order. Collective over the axis.
std::vector<std::string> all_gather_strings(const ObjectGroup& group, const std::string& text);
/// Returns the text of every rank in rank order on rank 0, and nothing on the others. For texts
/// that only rank 0 needs. Collective over the axis.
std::vector<std::string> gather_strings(const ObjectGroup& group, const std::string& text);
/// Returns the texts of rank 0 and ignores those of the other ranks. Collective over the axis.
std::vector<std::string> broadcast_strings(const ObjectGroup& group,
                                           const std::vector<std::string>& texts);
/// Returns the names of all ranks, sorted and without duplicates. Names must not contain line
/// breaks. Collective over the axis.
std::vector<std::string> all_gather_unique_names(const ObjectGroup& group,
                                                 const std::vector<std::string>& names);

}  // namespace megatron
