// What carries the calls of a group. Comm's order, threads and counters lie above it
// (queued_comm.h).
#pragma once

#include "megatron/parallel/comm.h"

namespace megatron {

class Transport {
 public:
  virtual ~Transport() = default;
  /// Blocks until the call is done or throws CommError. One collective at a time, one send per
  /// receiver, one receive per sender; these three kinds may be called from different threads at
  /// once.
  virtual void run(const CommCall& call) = 0;
  /// Ends this rank's present and future waits with a CommError: it is leaving because of an
  /// exception.
  virtual void cancel() = 0;
};

/// A transport with a function for each operation.
class OperationTransport : public Transport {
 protected:
  /// Calls the one of `call`.
  void dispatch(const CommCall& call);
  virtual void barrier(const CommCall& call) = 0;
  virtual void all_reduce(const CommCall& call) = 0;
  virtual void all_gather(const CommCall& call) = 0;
  virtual void reduce_scatter(const CommCall& call) = 0;
  virtual void all_to_all(const CommCall& call) = 0;
  virtual void broadcast(const CommCall& call) = 0;
  virtual void send(const CommCall& call) = 0;
  virtual void receive(const CommCall& call) = 0;
};

}  // namespace megatron
