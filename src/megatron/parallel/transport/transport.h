// What carries the calls of a group. Comm's order, threads and counters lie above it (lane_comm.h).
#pragma once

#include "megatron/parallel/comm.h"

namespace megatron {

class Transport {
 public:
  virtual ~Transport() = default;
  /// Blocks until the call is done or throws CommError. One collective at a time, one send per receiver, one receive per sender; these three kinds
  /// may be called from different threads at once.
  virtual void run(const CommCall& call) = 0;
  /// Ends this rank's present and future waits with a CommError: it is leaving because of an exception.
  virtual void cancel() = 0;
};

}  // namespace megatron
