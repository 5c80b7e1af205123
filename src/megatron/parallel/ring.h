// Messages from each rank of an axis to the next one.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"

namespace megatron {

/// Starts to send `out` to the next rank of the axis and to receive `in` from the previous one.
/// Returns the send and the receive. Odd ranks post the receive first: a pair of ranks that meets
/// for the first time on NCCL waits for both, and must not wait around the ring. Collective over
/// the axis, which has at least two ranks.
std::pair<PendingWork, PendingWork> exchange_around_ring(const Axis& axis, const at::Tensor& out,
                                                         const at::Tensor& in, const char* what);

}  // namespace megatron
