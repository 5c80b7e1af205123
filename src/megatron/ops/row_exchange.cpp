#include "megatron/ops/row_exchange.h"

#include <utility>

#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/collectives.h"

namespace megatron {

/// What the two autograd nodes of an exchange share.
struct PendingRows::State {
  Axis axis;
  RowCounts rows;
  const char* what;
  PendingTensor forward = {}, backward = {};
};

PendingRows start_exchange_rows(const Axis& axis, const at::Tensor& x, const RowCounts& rows,
                                const char* what) {
  if (axis.size == 1) return {.rows = x};
  auto state = std::make_shared<PendingRows::State>(
      PendingRows::State{.axis = axis, .rows = rows, .what = what});
  Recording recording({.name = "StartExchangeRowsBackward"}, {x});
  state->forward = start_all_to_all(axis, x.contiguous(), what, rows);
  const at::Tensor buffer =
      recording.finish(state->forward.tensor, {}, [state](BackwardPass&) -> Tensors {
        const at::Tensor dx = state->backward.wait();
        state->backward = {};
        return {dx};
      });
  return {.rows = buffer, .state = std::move(state)};
}

at::Tensor finish_exchange_rows(PendingRows pending) {
  if (pending.state == nullptr) return pending.rows;
  const std::shared_ptr<PendingRows::State> state = std::move(pending.state);
  Recording recording({.name = "FinishExchangeRowsBackward"}, {pending.rows});
  const at::Tensor arrived = state->forward.wait();
  state->forward = {};
  return recording.finish(arrived.alias(), {}, [state](BackwardPass& pass) -> Tensors {
    const at::Tensor dy = pass.gradients[0].contiguous();
    state->backward = start_all_to_all(state->axis, dy, state->what,
                                       {.out = state->rows.in, .in = state->rows.out});
    // The node of the start waits for the gradient and returns it. This one's result is only passed
    // to that node.
    return {dy};
  });
}

}  // namespace megatron
