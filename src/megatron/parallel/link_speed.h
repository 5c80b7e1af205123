// Measures messages between the ranks of an axis.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "megatron/parallel/axis.h"

namespace megatron {

/// Returns the median time in which every rank sends `out` to the next rank of the axis and
/// receives from the one before, all at the same time. Collective over the axis; 0 on one rank.
double ring_message_seconds(const Axis& axis, const at::Tensor& out);

/// What a message takes: latency_s + bytes / bytes_per_s.
struct LinkSpeed {
  double latency_s = 0, bytes_per_s = 0;
};

/// Measures messages of a few bytes and of about `bytes` bytes. Collective over the axis, which has
/// several ranks.
LinkSpeed measure_link(const Axis& axis, const at::Device& device, double bytes);

}  // namespace megatron
