#include "megatron/parallel/comm.h"

#include <array>

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

CommCall Comm::checked(CommCall call) const {
  for (const at::Tensor* tensor : {&call.out, &call.in}) {
    MEGATRON_CHECK(!tensor->defined() || tensor->is_contiguous(), describe(call),
                   ": the tensor is not contiguous");
  }
  MEGATRON_CHECK(call.peer >= 0 && call.peer < size(), describe(call), ": the group of ", size(),
                 " ranks has no rank ", call.peer);
  if (!call.in.defined() || !call.out.defined()) {
    const bool message =
        call.operation == CommOperation::send || call.operation == CommOperation::recv;
    MEGATRON_CHECK(!message || call.peer != rank(), describe(call),
                   ": a rank cannot send a message to itself");
    return call;
  }
  const std::int64_t in = call.in.numel(), out = call.out.numel();
  const bool gathers = call.operation == CommOperation::all_gather,
             scatters = call.operation == CommOperation::reduce_scatter;
  MEGATRON_CHECK(call.in.scalar_type() == call.out.scalar_type(), describe(call),
                 ": input and output differ in type");
  MEGATRON_CHECK((gathers ? in * size() : in) == (scatters ? out * size() : out), describe(call),
                 ": the sizes do not match: ", in, " elements in, ", out, " out, ", size(),
                 " ranks");
  const bool parts = call.operation == CommOperation::all_to_all;
  MEGATRON_CHECK(
      !parts || (in % size() == 0 && call.in.data_ptr() != call.out.data_ptr()) || in == 0,
      describe(call), ": needs equal parts along dimension 0 and two distinct tensors");
  return call;
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
PendingWork Comm::start_all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what) {
  return start(checked({CommOperation::all_to_all, out, in, what}));
}
PendingWork Comm::start_broadcast(const at::Tensor& tensor, std::int64_t root, const char* what) {
  return start(checked({.operation = CommOperation::broadcast,
                        .out = tensor,
                        .in = tensor,
                        .what = what,
                        .peer = root}));
}
PendingWork Comm::start_send(const at::Tensor& tensor, std::int64_t to, const char* what) {
  return start(checked({.operation = CommOperation::send, .in = tensor, .what = what, .peer = to}));
}
PendingWork Comm::start_recv(const at::Tensor& tensor, std::int64_t from, const char* what) {
  return start(
      checked({.operation = CommOperation::recv, .out = tensor, .what = what, .peer = from}));
}

void Comm::all_reduce(const at::Tensor& tensor, const char* what, ReduceOp op) {
  run(checked({CommOperation::all_reduce, tensor, tensor, what, op}));
}
void Comm::all_gather(const at::Tensor& out, const at::Tensor& in, const char* what) {
  run(checked({CommOperation::all_gather, out, in, what}));
}
void Comm::reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what,
                          ReduceOp op) {
  run(checked({CommOperation::reduce_scatter, out, in, what, op}));
}
void Comm::all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what) {
  run(checked({CommOperation::all_to_all, out, in, what}));
}
void Comm::broadcast(const at::Tensor& tensor, std::int64_t root, const char* what) {
  run(checked({.operation = CommOperation::broadcast,
               .out = tensor,
               .in = tensor,
               .what = what,
               .peer = root}));
}
void Comm::send(const at::Tensor& tensor, std::int64_t to, const char* what) {
  run(checked({.operation = CommOperation::send, .in = tensor, .what = what, .peer = to}));
}
void Comm::recv(const at::Tensor& tensor, std::int64_t from, const char* what) {
  run(checked({.operation = CommOperation::recv, .out = tensor, .what = what, .peer = from}));
}
void Comm::barrier(const char* what) {
  run(checked({.operation = CommOperation::barrier, .what = what}));
}

}  // namespace megatron
