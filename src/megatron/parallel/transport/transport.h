// The blocking operations that carry the calls of a group. queued_comm.h adds Comm's order, threads
// and counters on top.
#pragma once

#include <iterator>

#include "megatron/parallel/comm.h"

namespace megatron {

class Transport {
 public:
  virtual ~Transport() = default;
  /// Blocks until the call is done, or throws CommError. At most one collective, one send per
  /// receiver and one receive per sender may run at a time; these may run on different threads.
  virtual void run(const CommCall& call) = 0;
  /// Makes this rank's present and future waits throw CommError, because the rank ends after an
  /// exception.
  virtual void cancel() = 0;
};

/// A transport with one virtual function per operation.
class OperationTransport : public Transport {
 protected:
  /// Calls the function of `call.operation`.
  void dispatch(const CommCall& call) {
    using T = OperationTransport;
    // In the order of CommOperation.
    constexpr void (T::*kFunctions[])(const CommCall&) = {
        &T::barrier,    &T::all_reduce, &T::all_gather, &T::reduce_scatter,
        &T::all_to_all, &T::broadcast,  &T::send,       &T::receive};
    static_assert(std::size(kFunctions) == static_cast<std::size_t>(CommOperation::recv) + 1);
    (this->*kFunctions[static_cast<std::size_t>(call.operation)])(call);
  }
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
