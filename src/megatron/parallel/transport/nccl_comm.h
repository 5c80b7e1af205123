// A group whose ranks have a GPU each: tensors on a GPU go through NCCL, tensors on the CPU (and barriers) as between any ranks. Waiting for a
// GPU's tensor orders the current stream behind it; the host goes on, so exposed milliseconds are the host's alone. Not yet run on a GPU.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>

#include "megatron/parallel/transport/lane_comm.h"

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace megatron {

class NcclComm final : public LaneComm {
 public:
  NcclComm(GroupPlace place, std::shared_ptr<Transport> host, std::shared_ptr<CommCounters> counters, c10::intrusive_ptr<c10d::Backend> backend,
           std::chrono::milliseconds timeout);
  ~NcclComm() override;

 protected:
  PendingWork start(CommCall call) override;
  void run(CommCall call) override;

 private:
  c10::intrusive_ptr<c10d::Work> queue(const CommCall& call);

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::chrono::milliseconds timeout_;
};

}  // namespace megatron
