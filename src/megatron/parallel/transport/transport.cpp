#include "megatron/parallel/transport/transport.h"

namespace megatron {

void OperationTransport::dispatch(const CommCall& call) {
  switch (call.operation) {
    case CommOperation::barrier:
      return barrier(call);
    case CommOperation::all_reduce:
      return all_reduce(call);
    case CommOperation::all_gather:
      return all_gather(call);
    case CommOperation::reduce_scatter:
      return reduce_scatter(call);
    case CommOperation::all_to_all:
      return all_to_all(call);
    case CommOperation::broadcast:
      return broadcast(call);
    case CommOperation::send:
      return send(call);
    case CommOperation::recv:
      return receive(call);
  }
}

}  // namespace megatron
