#include "megatron/parallel/collectives.h"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

bool is_single_rank(const Axis& axis, const char* what) {
  if (axis.size == 1) return true;
  MEGATRON_CHECK(axis.comm != nullptr, "'", what, "' needs a communicator for the axis ", axis.name,
                 " of size ", axis.size);
  return false;
}

/// Returns the shape of `in` with its first dimension scaled by `multiply`/`divide`.
at::Tensor output_like(const Axis& axis, const at::Tensor& in, const char* what,
                       std::int64_t multiply, std::int64_t divide) {
  MEGATRON_CHECK(in.dim() > 0 && in.size(0) % divide == 0, "'", what, "': shape ", in.sizes(),
                 " does not divide by ", axis.name, "=", divide);
  std::vector<std::int64_t> shape = in.sizes().vec();
  shape[0] = shape[0] * multiply / divide;
  return at::empty(shape, in.options());
}

/// Returns a tensor like `in`, but with the sum of `rows` as its first dimension.
at::Tensor output_of_rows(const at::Tensor& in, const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> shape = in.sizes().vec();
  shape.at(0) = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  return at::empty(shape, in.options());
}

at::Tensor all_to_all_output(const Axis& axis, const at::Tensor& in, const char* what,
                             const RowCounts& rows) {
  return rows.out.empty() ? output_like(axis, in, what, axis.size, axis.size)
                          : output_of_rows(in, rows.out);
}

}  // namespace

void all_reduce_(const Axis& axis, const at::Tensor& tensor, const char* what, ReduceOp op) {
  if (!is_single_rank(axis, what)) axis.comm->all_reduce(tensor, what, op);
}

PendingTensor start_all_reduce_(const Axis& axis, const at::Tensor& tensor, const char* what,
                                ReduceOp op) {
  if (is_single_rank(axis, what)) return {tensor};
  return {tensor, axis.comm->start_all_reduce(tensor, what, op)};
}

at::Tensor all_gather(const Axis& axis, const at::Tensor& in, const char* what,
                      const std::vector<std::int64_t>& rows) {
  if (is_single_rank(axis, what)) return in;
  at::Tensor out =
      rows.empty() ? output_like(axis, in, what, axis.size, 1) : output_of_rows(in, rows);
  axis.comm->all_gather(out, in.contiguous(), what, rows);
  return out;
}

PendingTensor start_all_gather(const Axis& axis, const at::Tensor& in, const char* what) {
  if (is_single_rank(axis, what)) return {in};
  at::Tensor out = output_like(axis, in, what, axis.size, 1), packed = in.contiguous();
  PendingWork work = axis.comm->start_all_gather(out, packed, what);
  return {std::move(out), std::move(work), std::move(packed)};
}

at::Tensor reduce_scatter(const Axis& axis, const at::Tensor& in, const char* what, ReduceOp op) {
  if (is_single_rank(axis, what)) return in;
  at::Tensor out = output_like(axis, in, what, 1, axis.size);
  axis.comm->reduce_scatter(out, in.contiguous(), what, op);
  return out;
}

PendingTensor start_reduce_scatter(const Axis& axis, const at::Tensor& in, const char* what,
                                   ReduceOp op) {
  if (is_single_rank(axis, what)) return {in};
  at::Tensor out = output_like(axis, in, what, 1, axis.size), packed = in.contiguous();
  PendingWork work = axis.comm->start_reduce_scatter(out, packed, what, op);
  return {std::move(out), std::move(work), std::move(packed)};
}

at::Tensor all_to_all(const Axis& axis, const at::Tensor& in, const char* what,
                      const RowCounts& rows) {
  if (is_single_rank(axis, what)) return in;
  at::Tensor out = all_to_all_output(axis, in, what, rows);
  axis.comm->all_to_all(out, in.contiguous(), what, rows);
  return out;
}

PendingTensor start_all_to_all(const Axis& axis, const at::Tensor& in, const char* what,
                               const RowCounts& rows) {
  if (is_single_rank(axis, what)) return {in};
  at::Tensor out = all_to_all_output(axis, in, what, rows), packed = in.contiguous();
  PendingWork work = axis.comm->start_all_to_all(out, packed, what, rows);
  return {std::move(out), std::move(work), std::move(packed)};
}

void broadcast_(const Axis& axis, const at::Tensor& tensor, std::int64_t root, const char* what) {
  if (!is_single_rank(axis, what)) axis.comm->broadcast(tensor, root, what);
}

void barrier(const Axis& axis, const char* what) {
  if (!is_single_rank(axis, what)) axis.comm->barrier(what);
}

std::pair<PendingWork, PendingWork> exchange_around_ring(const Axis& axis, const at::Tensor& out,
                                                         const at::Tensor& in, const char* what) {
  MEGATRON_CHECK(!is_single_rank(axis, what), "'", what, "' goes around the ring ", axis.name,
                 " of one rank");
  const std::int64_t next = (axis.rank + 1) % axis.size,
                     previous = (axis.rank + axis.size - 1) % axis.size;
  PendingWork received;
  if (axis.rank % 2 == 1) received = axis.comm->start_recv(in, previous, what);
  PendingWork sent = axis.comm->start_send(out, next, what);
  if (received == nullptr) received = axis.comm->start_recv(in, previous, what);
  return {std::move(sent), std::move(received)};
}

}  // namespace megatron
