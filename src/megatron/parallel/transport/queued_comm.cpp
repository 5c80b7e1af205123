#include "megatron/parallel/transport/queued_comm.h"

#include <algorithm>
#include <exception>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Marks the rank's program as blocked in a call while the object lives.
class BlockedScope {
 public:
  BlockedScope(HostStatus& host_status, std::int64_t rank)
      : host_status_(host_status), rank_(rank) {
    host_status_.waits().add_blocked(rank_, 1);
  }
  ~BlockedScope() { host_status_.waits().add_blocked(rank_, -1); }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

 private:
  HostStatus& host_status_;
  std::int64_t rank_;
};

/// A call that was posted.
struct PostedCall {
  std::shared_ptr<TaskQueue> queue;
  std::shared_ptr<TaskQueue::Task> task;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<CommCounters> counters;
  CommCountKey counted;
  std::shared_ptr<HostStatus> host_status;
  std::int64_t rank;     ///< World rank.
  std::uint64_t number;  ///< In the rank's history of calls.
};

class QueuedWork final : public Work {
 public:
  explicit QueuedWork(PostedCall call) : call_(std::move(call)) {}
  ~QueuedWork() override {
    if (waited_) return;
    if (std::uncaught_exceptions() > exceptions_) call_.transport->cancel();
    try {
      wait_for_task();
    } catch (const std::exception&) {
      // Expected when a peer fails. Nothing waits for the result. The queue reports the failure to
      // its next caller.
    }
  }
  void wait() override {
    if (waited_) return;
    waited_ = true;
    const ScopedExposedTime exposed_time(*call_.counters, call_.counted);
    wait_for_task();
  }

 private:
  void wait_for_task() {
    const BlockedScope blocked(*call_.host_status, call_.rank);
    call_.host_status->history().await(call_.rank, call_.number);
    call_.queue->wait(call_.task);
  }

  PostedCall call_;
  int exceptions_ = std::uncaught_exceptions();
  bool waited_ = false;
};

}  // namespace

CommCountKey record_call(CommCounters& counters, const CommCall& call) {
  const std::size_t in = call.in.defined() ? call.in.nbytes() : 0,
                    out = call.out.defined() ? call.out.nbytes() : 0;
  counters.add_call(call.axis, name_of(call.operation), call.what,
                    static_cast<std::int64_t>(std::max(in, out)));
  return {.axis = call.axis, .operation = call.operation, .what = call.what, .peer = call.peer};
}

ScopedExposedTime::~ScopedExposedTime() {
  const double end_s = monotonic_seconds();
  const char* const operation = name_of(call_.operation);
  counters_.add_exposed(call_.axis, operation, call_.what, (end_s - begin_s_) * 1e3);
  if (counters_.activities().is_on())
    counters_.activities().add(
        CommWait{call_.axis, operation, call_.what, call_.peer, begin_s_, end_s});
}

QueuedComm::QueuedComm(GroupInfo group_info, std::shared_ptr<Transport> transport,
                       std::shared_ptr<CommCounters> counters,
                       std::shared_ptr<HostStatus> host_status)
    : transport_(std::move(transport)),
      group_info_(std::move(group_info)),
      counters_(std::move(counters)),
      host_status_(std::move(host_status)),
      group_(host_status_->history().add_group(group_info_.name, group_info_.ranks)) {}

QueuedComm::Order QueuedComm::order_of(const CommCall& call) {
  return is_message(call.operation) ? Order{call.operation, call.peer}
                                    : Order{CommOperation::barrier, std::int64_t{0}};
}

std::uint64_t QueuedComm::enter(const CommCall& call, bool is_awaited) {
  const bool has_peer = is_message(call.operation) || call.operation == CommOperation::broadcast;
  CallHistory::Place place{.rank = own_rank(), .group = group_, .is_awaited = is_awaited};
  if (has_peer) place.peer = group_info_.ranks[static_cast<std::size_t>(call.peer)];
  const std::lock_guard lock(mutex_);  // so that numbers are entered in their order
  place.group_number = ++num_calls_[order_of(call)];
  return host_status_->history().enter(place, call);
}

std::shared_ptr<TaskQueue> QueuedComm::queue_of(const CommCall& call) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<TaskQueue>& queue = queues_[order_of(call)];
  if (!queue) queue = std::make_shared<TaskQueue>();
  return queue;
}

PendingWork QueuedComm::start(CommCall call) {
  CommCountKey counted = record_call(*counters_, call);
  check_memory(call);
  std::shared_ptr<TaskQueue> queue = queue_of(call);
  const std::uint64_t number = enter(call);
  auto task = queue->post([transport = transport_, host_status = host_status_, rank = own_rank(),
                           number, call = std::move(call)] {
    transport->run(call);
    host_status->history().leave(rank, number);
  });
  return std::make_unique<QueuedWork>(PostedCall{std::move(queue), std::move(task), transport_,
                                                 counters_, std::move(counted), host_status_,
                                                 own_rank(), number});
}

void QueuedComm::run(CommCall call) {
  const ScopedExposedTime exposed_time(*counters_, record_call(*counters_, call));
  check_memory(call);
  const BlockedScope blocked(*host_status_, own_rank());
  const std::uint64_t number = enter(call, /*is_awaited=*/true);
  queue_of(call)->run([&] { transport_->run(call); });
  host_status_->history().leave(own_rank(), number);
}

void QueuedComm::check_memory(const CommCall& call) const {
  for (const at::Tensor* tensor : {&call.in, &call.out}) {
    MEGATRON_CHECK(!tensor->defined() || tensor->is_cpu(), describe_with_place(call),
                   ": the tensor is on a GPU, but the group's transport is for the CPU");
  }
}

}  // namespace megatron
