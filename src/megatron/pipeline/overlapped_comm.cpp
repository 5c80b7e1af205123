#include "megatron/pipeline/overlapped_comm.h"

#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

PendingWork start_on(Comm& comm, const CommCall& call) {
  switch (call.operation) {
    case CommOperation::all_reduce:
      return comm.start_all_reduce(call.out, call.what, call.reduce);
    case CommOperation::all_gather:
      return comm.start_all_gather(call.out, call.in, call.what);
    case CommOperation::reduce_scatter:
      return comm.start_reduce_scatter(call.out, call.in, call.what, call.reduce);
    case CommOperation::all_to_all:
      return comm.start_all_to_all(call.out, call.in, call.what);
    case CommOperation::broadcast:
      return comm.start_broadcast(call.out, call.peer, call.what);
    case CommOperation::send:
      return comm.start_send(call.in, call.peer, call.what);
    case CommOperation::recv:
      return comm.start_recv(call.out, call.peer, call.what);
    case CommOperation::barrier:
      break;
  }
  MEGATRON_CHECK(false, describe(call), " has no asynchronous form");
}

void run_on(Comm& comm, const CommCall& call) {
  switch (call.operation) {
    case CommOperation::all_reduce:
      return comm.all_reduce(call.out, call.what, call.reduce);
    case CommOperation::all_gather:
      return comm.all_gather(call.out, call.in, call.what);
    case CommOperation::reduce_scatter:
      return comm.reduce_scatter(call.out, call.in, call.what, call.reduce);
    case CommOperation::all_to_all:
      return comm.all_to_all(call.out, call.in, call.what);
    case CommOperation::broadcast:
      return comm.broadcast(call.out, call.peer, call.what);
    case CommOperation::send:
      return comm.send(call.in, call.peer, call.what);
    case CommOperation::recv:
      return comm.recv(call.out, call.peer, call.what);
    case CommOperation::barrier:
      return comm.barrier(call.what);
  }
}

class OverlappedWork final : public Work {
 public:
  OverlappedWork(PendingWork work, std::shared_ptr<OverlappedPair> pair)
      : work_(std::move(work)), pair_(std::move(pair)) {}
  void wait() override {
    if (is_waited_) return;
    pair_->yield();
    is_waited_ = true;
    work_->wait();
  }

 private:
  PendingWork work_;
  std::shared_ptr<OverlappedPair> pair_;
  bool is_waited_ = false;
};

}  // namespace

PendingWork OverlappedComm::start(CommCall call) {
  PendingWork work = start_on(*comm_, call);
  if (!pair_->is_running()) return work;
  return std::make_unique<OverlappedWork>(std::move(work), pair_);
}

void OverlappedComm::run(CommCall call) {
  if (!pair_->is_running() || call.operation == CommOperation::barrier) return run_on(*comm_, call);
  start(std::move(call))->wait();
}

void enable_overlap(Axis& axis, c10::Device device) {
  if (axis.comm != nullptr)
    axis.comm =
        std::make_shared<OverlappedComm>(axis.comm, std::make_shared<OverlappedPair>(device));
}

OverlappedPair* overlapped_pair_of(const Axis& axis) {
  const auto* comm = dynamic_cast<const OverlappedComm*>(axis.comm.get());
  return comm != nullptr ? &comm->pair() : nullptr;
}

}  // namespace megatron
