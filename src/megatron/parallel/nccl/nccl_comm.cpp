#include "megatron/parallel/nccl/nccl_comm.h"

#include <c10/util/Exception.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "megatron/parallel/transport/queued_comm.h"

namespace megatron {
namespace {

c10d::ReduceOp reduce_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::average:
      return c10d::ReduceOp::AVG;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::SUM;
}

bool on_gpu(const CommCall& call) {
  return (call.in.defined() && call.in.is_cuda()) || (call.out.defined() && call.out.is_cuda());
}

/// Returns the tensor without its autograd graph, so that autograd does not record the collective.
at::Tensor plain(const at::Tensor& tensor) { return tensor.detach(); }

class NcclWork final : public Work {
 public:
  NcclWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<CommCounters> counters,
           CommCountKey call, std::shared_ptr<DeviceCalls> device_calls, std::uint64_t number)
      : work_(std::move(work)),
        counters_(std::move(counters)),
        call_(std::move(call)),
        device_calls_(std::move(device_calls)),
        number_(number) {}
  ~NcclWork() override {
    if (!work_ || std::uncaught_exceptions() > exceptions_) return;
    try {
      work_->wait();
      device_calls_->add(number_);
    } catch (const std::exception&) {
      // Expected when a peer fails. Nothing waits for the result. The group reports its failure at
      // the next call.
    }
  }
  void wait() override {
    if (!work_) return;
    const ScopedExposedTime exposed_time(*counters_, call_);
    const c10::intrusive_ptr<c10d::Work> work = std::move(work_);
    try {
      work->wait();
      device_calls_->add(number_);
    } catch (const c10::Error& error) {
      throw CommError(std::string(name_of(call_.operation)) + " '" + call_.what + "' on " +
                      call_.axis + ": " + error.what_without_backtrace());
    }
  }

  bool is_done() const override { return !work_ || work_->isCompleted(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<CommCounters> counters_;
  CommCountKey call_;
  std::shared_ptr<DeviceCalls> device_calls_;
  std::uint64_t number_;  ///< in the history of calls
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

NcclComm::NcclComm(GroupInfo group_info, std::shared_ptr<Transport> host,
                   std::shared_ptr<CommCounters> counters, std::shared_ptr<HostStatus> host_status,
                   std::shared_ptr<DeviceCalls> device_calls, MakeBackend make,
                   std::chrono::milliseconds timeout)
    : QueuedComm(std::move(group_info), std::move(host), std::move(counters),
                 std::move(host_status)),
      device_calls_(std::move(device_calls)),
      make_(std::move(make)),
      timeout_(timeout) {
  backends_[static_cast<std::size_t>(Traffic::collectives)] = make_(Traffic::collectives);
}

NcclComm::~NcclComm() = default;

NcclComm::Traffic NcclComm::traffic_of(const CommCall& call) const {
  if (call.operation == CommOperation::send)
    return call.peer > rank() ? Traffic::upward : Traffic::downward;
  if (call.operation == CommOperation::recv)
    return call.peer < rank() ? Traffic::upward : Traffic::downward;
  return Traffic::collectives;
}

c10::intrusive_ptr<c10d::Work> NcclComm::enqueue(const CommCall& call) {
  const Traffic traffic = traffic_of(call);
  c10::intrusive_ptr<c10d::Backend>& backend = backends_[static_cast<std::size_t>(traffic)];
  if (!backend) backend = make_(traffic);
  at::Tensor out = call.out.defined() ? plain(call.out) : at::Tensor(),
             in = call.in.defined() ? plain(call.in) : at::Tensor();
  std::vector<at::Tensor> outs{out}, ins{in};
  std::vector<std::int64_t> out_rows = call.rows.out, in_rows = call.rows.in;
  const int peer = static_cast<int>(call.peer);
  switch (call.operation) {
    case CommOperation::all_reduce:
      return backend->allreduce(outs, {.reduceOp = reduce_of(call.reduce), .timeout = timeout_});
    case CommOperation::all_gather: {
      if (!call.is_uneven()) return backend->_allgather_base(out, in, {.timeout = timeout_});
      std::vector<std::vector<at::Tensor>> parts{out.split_with_sizes(call.rows.out)};
      return backend->allgather(parts, ins, {.timeout = timeout_});
    }
    case CommOperation::reduce_scatter:
      return backend->_reduce_scatter_base(
          out, in, {.reduceOp = reduce_of(call.reduce), .timeout = timeout_});
    case CommOperation::all_to_all:
      return backend->alltoall_base(out, in, out_rows, in_rows, {.timeout = timeout_});
    case CommOperation::broadcast:
      return backend->broadcast(outs, {.rootRank = call.peer, .timeout = timeout_});
    case CommOperation::send:
      return backend->send(ins, peer, 0);
    default:
      return backend->recv(outs, peer, 0);
  }
}

PendingWork NcclComm::start(CommCall call) {
  if (!on_gpu(call)) return QueuedComm::start(std::move(call));
  CommCountKey counted = record_call(*counters(), call);
  const std::uint64_t number = enter(call);
  return std::make_unique<NcclWork>(enqueue(call), counters(), std::move(counted), device_calls_,
                                    number);
}

void NcclComm::run(CommCall call) {
  if (!on_gpu(call)) return QueuedComm::run(std::move(call));
  start(std::move(call))->wait();
}

}  // namespace megatron
