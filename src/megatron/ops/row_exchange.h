// Differentiable exchange of rows between the ranks of an axis (uneven all-to-all). Between start
// and finish other operations can run, in forward and, because autograd runs them in reverse, in
// backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"

namespace megatron {

/// Rows under way. finish_exchange_rows() must be called once.
struct PendingRows {
  struct State;
  at::Tensor rows;  ///< the receive buffer, before the rows have arrived
  std::shared_ptr<State> state = {};
};

/// Sends rows.in[i] rows of x to rank i and receives rows.out[j] rows from rank j. Backward sends
/// their gradients back. `what` is a string literal that names both in the counters. The identity
/// on an axis of size 1. Collective over `axis` in forward and in backward.
PendingRows start_exchange_rows(const Axis& axis, const at::Tensor& x, const RowCounts& rows,
                                const char* what);
/// Returns the rows that have arrived, by source rank. Must not be called twice.
at::Tensor finish_exchange_rows(PendingRows pending);

/// Both, one after the other.
inline at::Tensor exchange_rows(const Axis& axis, const at::Tensor& x, const RowCounts& rows,
                                const char* what) {
  return finish_exchange_rows(start_exchange_rows(axis, x, rows, what));
}

}  // namespace megatron
