// A group whose ranks have one GPU each. Tensors on a GPU go through NCCL; tensors on the CPU and
// barriers go through the host transport. Waiting for a GPU tensor only orders the current stream
// behind it while the host continues, so exposed milliseconds cover host time only.
//
// c10d gives a pair of ranks one communicator and one stream for the messages of both directions.
// If both ranks enqueued a send before a receive, they would deadlock. Messages to higher and to
// lower ranks therefore use separate backends, each made with its first message.
// Not yet run on a GPU.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "megatron/parallel/nccl/device_calls.h"
#include "megatron/parallel/transport/queued_comm.h"

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace megatron {

class NcclComm final : public QueuedComm {
 public:
  /// What a backend carries. Ranks that communicate through a backend must pass the same value.
  enum class Traffic : std::uint8_t { collectives, upward, downward };
  using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(Traffic traffic)>;

  NcclComm(GroupInfo group_info, std::shared_ptr<Transport> host,
           std::shared_ptr<CommCounters> counters, std::shared_ptr<HostStatus> host_status,
           std::shared_ptr<DeviceCalls> device_calls, MakeBackend make,
           std::chrono::milliseconds timeout);
  ~NcclComm() override;

 protected:
  PendingWork start(CommCall call) override;
  void run(CommCall call) override;

 private:
  c10::intrusive_ptr<c10d::Work> enqueue(const CommCall& call);

  Traffic traffic_of(const CommCall& call) const;

  const std::shared_ptr<DeviceCalls> device_calls_;
  const MakeBackend make_;
  std::array<c10::intrusive_ptr<c10d::Backend>, 3> backends_;  ///< By traffic; null: not yet made.
  std::chrono::milliseconds timeout_;
};

}  // namespace megatron
