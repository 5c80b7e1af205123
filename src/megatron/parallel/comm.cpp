#include "megatron/parallel/comm.h"

#include <array>
#include <numeric>

#include "megatron/base/error.h"

namespace megatron {

const char* name_of(CommOperation operation) {
  static constexpr std::array<const char*, 8> kNames{"barrier",        "all_reduce", "all_gather",
                                                     "reduce_scatter", "all_to_all", "broadcast",
                                                     "send",           "recv"};
  return kNames.at(static_cast<std::size_t>(operation));
}

std::string describe(const CommCall& call) {
  return std::string(name_of(call.operation)) + " '" + call.what + "'";
}

std::string describe_with_place(const CommCall& call) {
  return describe(call) + " on " + call.axis + (call.layer ? " in " + *call.layer : "");
}

CommCall Comm::checked(CommCall call) const {
  call.axis = name();
  call.layer = current_layer();
  for (const at::Tensor* tensor : {&call.out, &call.in}) {
    MEGATRON_CHECK(!tensor->defined() || tensor->is_contiguous(), describe(call), ": a tensor of ",
                   tensor->sizes(), " is not contiguous: strides ", tensor->strides());
  }
  MEGATRON_CHECK(call.peer >= 0 && call.peer < size(), describe(call), ": the group of ", size(),
                 " ranks has no rank ", call.peer);
  if (!call.in.defined() || !call.out.defined()) {
    MEGATRON_CHECK(!is_message(call.operation) || call.peer != rank(), describe(call),
                   ": a rank cannot send a message to itself");
    return call;
  }
  MEGATRON_CHECK(call.in.scalar_type() == call.out.scalar_type(), describe(call), ": the input is ",
                 call.in.scalar_type(), ", the output ", call.out.scalar_type());
  MEGATRON_CHECK(call.operation != CommOperation::all_to_all ||
                     call.in.data_ptr() != call.out.data_ptr() || call.in.numel() == 0 ||
                     call.in.is_meta(),
                 describe(call), ": needs two distinct tensors");
  call.is_uneven() ? check_rows(call) : check_sizes(call);
  return call;
}

void Comm::check_sizes(const CommCall& call) const {
  const std::int64_t in = call.in.numel(), out = call.out.numel();
  const bool gathers = call.operation == CommOperation::all_gather,
             scatters = call.operation == CommOperation::reduce_scatter;
  MEGATRON_CHECK((gathers ? in * size() : in) == (scatters ? out * size() : out), describe(call),
                 ": the sizes do not match: ", in, " elements in, ", out, " out, ", size(),
                 " ranks");
  MEGATRON_CHECK(call.operation != CommOperation::all_to_all || in % size() == 0, describe(call),
                 ": ", in, " elements do not make equal parts for ", size(), " ranks");
}

void Comm::check_rows(const CommCall& call) const {
  MEGATRON_CHECK(call.in.dim() > 0 && call.out.dim() > 0 &&
                     call.in.sizes().slice(1) == call.out.sizes().slice(1),
                 describe(call), ": rows of ", call.in.sizes(), " in and of ", call.out.sizes(),
                 " out");
  const auto check = [&](const std::vector<std::int64_t>& rows, const at::Tensor& tensor,
                         const char* name) {
    MEGATRON_CHECK(static_cast<std::int64_t>(rows.size()) == size(), describe(call), ": ",
                   rows.size(), " row counts of ", name, " for ", size(), " ranks");
    for (const std::int64_t count : rows)
      MEGATRON_CHECK(count >= 0, describe(call), ": ", count, " rows of ", name);
    const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    MEGATRON_CHECK(total == tensor.size(0), describe(call), ": ", name, " has ", tensor.size(0),
                   " rows, but the row counts sum to ", total);
  };
  check(call.rows.out, call.out, "the output");
  if (call.operation != CommOperation::all_gather) return check(call.rows.in, call.in, "the input");
  const std::int64_t own = call.rows.out[static_cast<std::size_t>(rank())];
  MEGATRON_CHECK(own == call.in.size(0), describe(call), ": the input has ", call.in.size(0),
                 " rows, not ", own);
}

PendingWork Comm::start_all_reduce(const at::Tensor& tensor, const char* what, ReduceOp op) {
  return start(checked({CommOperation::all_reduce, tensor, tensor, what, op}));
}
PendingWork Comm::start_all_gather(const at::Tensor& out, const at::Tensor& in, const char* what) {
  return start(checked({CommOperation::all_gather, out, in, what}));
}
PendingWork Comm::start_reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                       const char* what, ReduceOp op) {
  return start(checked({CommOperation::reduce_scatter, out, in, what, op}));
}
PendingWork Comm::start_all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what,
                                   const RowCounts& rows) {
  return start(checked({CommOperation::all_to_all, out, in, what, ReduceOp::sum, 0, rows}));
}
PendingWork Comm::start_send(const at::Tensor& tensor, std::int64_t to, const char* what) {
  return start(checked({CommOperation::send, {}, tensor, what, ReduceOp::sum, to}));
}
PendingWork Comm::start_recv(const at::Tensor& tensor, std::int64_t from, const char* what) {
  return start(checked({CommOperation::recv, tensor, {}, what, ReduceOp::sum, from}));
}

void Comm::all_reduce(const at::Tensor& tensor, const char* what, ReduceOp op) {
  run(checked({CommOperation::all_reduce, tensor, tensor, what, op}));
}
void Comm::all_gather(const at::Tensor& out, const at::Tensor& in, const char* what,
                      const std::vector<std::int64_t>& rows) {
  run(checked({CommOperation::all_gather, out, in, what, ReduceOp::sum, 0, {.out = rows}}));
}
void Comm::reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what,
                          ReduceOp op) {
  run(checked({CommOperation::reduce_scatter, out, in, what, op}));
}
void Comm::all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what,
                      const RowCounts& rows) {
  run(checked({CommOperation::all_to_all, out, in, what, ReduceOp::sum, 0, rows}));
}
void Comm::broadcast(const at::Tensor& tensor, std::int64_t root, const char* what) {
  run(checked({CommOperation::broadcast, tensor, tensor, what, ReduceOp::sum, root}));
}
void Comm::send(const at::Tensor& tensor, std::int64_t to, const char* what) {
  run(checked({CommOperation::send, {}, tensor, what, ReduceOp::sum, to}));
}
void Comm::recv(const at::Tensor& tensor, std::int64_t from, const char* what) {
  run(checked({CommOperation::recv, tensor, {}, what, ReduceOp::sum, from}));
}
void Comm::barrier(const char* what) {
  run(checked({.operation = CommOperation::barrier, .what = what}));
}

}  // namespace megatron
