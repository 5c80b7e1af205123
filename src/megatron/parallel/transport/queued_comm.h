// Implements Comm on a blocking transport. Calls run in order on task queues, one for collectives
// and one per direction and partner for messages. Every call is counted.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "megatron/base/monotonic_clock.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/comm_counters.h"
#include "megatron/parallel/shared_memory/spin_wait.h"
#include "megatron/parallel/transport/task_queue.h"
#include "megatron/parallel/transport/transport.h"

namespace megatron {

/// Key of a call's row in the counters.
struct CommCountKey {
  std::string axis;
  CommOperation operation;
  const char* what;
  std::int64_t peer = 0;  ///< of a message or broadcast
};

/// Counts a call that begins.
CommCountKey record_call(CommCounters& counters, const CommCall& call);

/// Adds the lifetime of the object to the exposed time of a call.
class ScopedExposedTime {
 public:
  ScopedExposedTime(CommCounters& counters, CommCountKey call)
      : counters_(counters), call_(std::move(call)) {}
  ~ScopedExposedTime();
  ScopedExposedTime(const ScopedExposedTime&) = delete;
  ScopedExposedTime& operator=(const ScopedExposedTime&) = delete;

 private:
  CommCounters& counters_;
  CommCountKey call_;
  double begin_s_ = monotonic_seconds();
};

class QueuedComm : public Comm {
 public:
  /// `host_status` shows other ranks when this rank is blocked, and its last calls.
  QueuedComm(GroupInfo group_info, std::shared_ptr<Transport> transport,
             std::shared_ptr<CommCounters> counters, std::shared_ptr<HostStatus> host_status);
  std::int64_t rank() const override { return group_info_.rank; }
  std::int64_t size() const override { return group_info_.size(); }
  const std::string& name() const override { return group_info_.name; }
  const std::vector<std::int64_t>& ranks() const override { return group_info_.ranks; }

 protected:
  PendingWork start(CommCall call) override;
  void run(CommCall call) override;
  const std::shared_ptr<CommCounters>& counters() const { return counters_; }
  /// Records a call in this rank's history and returns its number there. `is_awaited`: the caller
  /// waits for it at once.
  std::uint64_t enter(const CommCall& call, bool is_awaited = false);

 private:
  std::shared_ptr<TaskQueue> queue_of(const CommCall& call);
  void check_memory(const CommCall& call) const;
  std::int64_t own_rank() const {
    return group_info_.ranks[static_cast<std::size_t>(group_info_.rank)];
  }

  std::shared_ptr<Transport> transport_;
  GroupInfo group_info_;
  std::shared_ptr<CommCounters> counters_;
  std::shared_ptr<HostStatus> host_status_;
  std::uint64_t group_;  ///< identity in the history of calls
  /// Calls of one order: the collectives, or the messages of one direction and partner.
  using Order = std::pair<CommOperation, std::int64_t>;
  static Order order_of(const CommCall& call);
  std::mutex mutex_;
  std::map<Order, std::shared_ptr<TaskQueue>> queues_;
  std::map<Order, std::uint64_t> num_calls_;
};

}  // namespace megatron
