// Collectives on an axis, as layers call them. `what` names the call in counters and messages. On
// an axis of size 1 each is the identity and is not counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"

namespace megatron {

/// The result of a collective under way. wait() returns it and is collective over the axis.
struct PendingTensor {
  at::Tensor tensor;
  PendingWork work = {};  ///< Null when nothing is under way.
  at::Tensor input = {};  ///< Keeps the input alive until the work is done.

  const at::Tensor& wait() {
    if (work) work->wait();
    work.reset();
    input.reset();
    return tensor;
  }
};

/// Reduces `tensor`, which must be contiguous, in place over the axis. Collective over the axis.
void all_reduce_(const Axis& axis, const at::Tensor& tensor, const char* what,
                 ReduceOp op = ReduceOp::sum);
PendingTensor start_all_reduce_(const Axis& axis, const at::Tensor& tensor, const char* what,
                                ReduceOp op = ReduceOp::sum);

/// Concatenates the shards in rank order: [n, …] → [size·n, …]. Collective over the axis.
/// With `rows`, equal on all ranks, rank j has rows[j] rows.
at::Tensor all_gather(const Axis& axis, const at::Tensor& in, const char* what,
                      const std::vector<std::int64_t>& rows = {});
PendingTensor start_all_gather(const Axis& axis, const at::Tensor& in, const char* what);

/// Returns this rank's part of the reduced input: [size·n, …] → [n, …]. Collective over the axis.
at::Tensor reduce_scatter(const Axis& axis, const at::Tensor& in, const char* what,
                          ReduceOp op = ReduceOp::sum);
PendingTensor start_reduce_scatter(const Axis& axis, const at::Tensor& in, const char* what,
                                   ReduceOp op = ReduceOp::sum);

/// Sends part i to rank i and receives part j from rank j: [size·n, …] → [size·n, …]. Collective
/// over the axis. With `rows`, rows.in[i] rows go to rank i, and rows.out[j] rows come from rank j.
at::Tensor all_to_all(const Axis& axis, const at::Tensor& in, const char* what,
                      const RowCounts& rows = {});
PendingTensor start_all_to_all(const Axis& axis, const at::Tensor& in, const char* what,
                               const RowCounts& rows = {});

/// Broadcasts `tensor` in place from `root`, a rank of the axis. Collective over the axis.
void broadcast_(const Axis& axis, const at::Tensor& tensor, std::int64_t root, const char* what);

/// Returns after every rank has called it. Collective over the axis.
void barrier(const Axis& axis, const char* what);

/// Starts to send `out` to the next rank of the axis and to receive `in` from the previous one.
/// Returns the send and the receive. Odd ranks post the receive first: a pair of ranks that meets
/// for the first time on NCCL waits for both, and must not wait around the ring. Collective over
/// the axis, which has at least two ranks.
std::pair<PendingWork, PendingWork> exchange_around_ring(const Axis& axis, const at::Tensor& out,
                                                         const at::Tensor& in, const char* what);

}  // namespace megatron
