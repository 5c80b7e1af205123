// Collectives on an axis: what layers call. On an axis of size 1 each is the identity and nothing
// is counted.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"

namespace megatron {

/// A result on its way; wait() gives it. Collective over the axis, as what started it.
struct PendingTensor {
  at::Tensor tensor;
  PendingWork work = {};  ///< null when there was nothing to do
  at::Tensor input = {};  ///< kept until the work is done

  const at::Tensor& wait() {
    if (work) work->wait();
    work.reset();
    input.reset();
    return tensor;
  }
};

/// In place; `tensor` is contiguous.
void all_reduce_(const Axis& axis, const at::Tensor& tensor, const char* what,
                 ReduceOp op = ReduceOp::sum);
PendingTensor start_all_reduce_(const Axis& axis, const at::Tensor& tensor, const char* what,
                                ReduceOp op = ReduceOp::sum);

/// [n, …] → [size·n, …], in rank order.
at::Tensor all_gather(const Axis& axis, const at::Tensor& in, const char* what);
PendingTensor start_all_gather(const Axis& axis, const at::Tensor& in, const char* what);

/// [size·n, …] → [n, …], this rank's part of the sum.
at::Tensor reduce_scatter(const Axis& axis, const at::Tensor& in, const char* what,
                          ReduceOp op = ReduceOp::sum);
PendingTensor start_reduce_scatter(const Axis& axis, const at::Tensor& in, const char* what,
                                   ReduceOp op = ReduceOp::sum);

/// [size·n, …] → [size·n, …]: part i goes to rank i, part j comes from rank j.
at::Tensor all_to_all(const Axis& axis, const at::Tensor& in, const char* what);
PendingTensor start_all_to_all(const Axis& axis, const at::Tensor& in, const char* what);

/// In place; `root` is a rank of the axis.
void broadcast_(const Axis& axis, const at::Tensor& tensor, std::int64_t root, const char* what);

void barrier(const Axis& axis, const char* what);

}  // namespace megatron
