// A group whose ranks have a GPU each: tensors on a GPU go through NCCL, tensors on the CPU (and
// barriers) as between any ranks. Waiting for a GPU's tensor orders the current stream behind it;
// the host goes on, so exposed milliseconds are the host's alone. Not yet run on a GPU.
//
// c10d gives a pair of ranks one communicator and one stream for the messages of both directions:
// where each queues a send before its receive, both would wait for ever. Messages from lower to
// higher ranks and those from higher to lower therefore have a backend each, made with the first
// message.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "megatron/parallel/transport/queued_comm.h"

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace megatron {

class NcclComm final : public QueuedComm {
 public:
  /// What a backend carries; ranks that talk through it ask for the same.
  enum class Traffic : std::uint8_t { collectives, upward, downward };
  using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(Traffic traffic)>;

  NcclComm(GroupInfo group_info, std::shared_ptr<Transport> host,
           std::shared_ptr<CommCounters> counters, std::shared_ptr<HostStatus> host_status,
           MakeBackend make, std::chrono::milliseconds timeout);
  ~NcclComm() override;

 protected:
  PendingWork start(CommCall call) override;
  void run(CommCall call) override;

 private:
  c10::intrusive_ptr<c10d::Work> enqueue(const CommCall& call);

  Traffic traffic_of(const CommCall& call) const;

  const MakeBackend make_;
  std::array<c10::intrusive_ptr<c10d::Backend>, 3> backends_;  ///< by traffic; null: not needed yet
  std::chrono::milliseconds timeout_;
};

}  // namespace megatron
