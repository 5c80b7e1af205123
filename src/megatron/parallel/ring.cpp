#include "megatron/parallel/ring.h"

namespace megatron {

std::pair<PendingWork, PendingWork> exchange_around_ring(const Axis& axis, const at::Tensor& out,
                                                         const at::Tensor& in, const char* what) {
  const std::int64_t next = (axis.rank + 1) % axis.size,
                     previous = (axis.rank + axis.size - 1) % axis.size;
  PendingWork received;
  if (axis.rank % 2 == 1) received = axis.comm->start_recv(in, previous, what);
  PendingWork sent = axis.comm->start_send(out, next, what);
  if (received == nullptr) received = axis.comm->start_recv(in, previous, what);
  return {std::move(sent), std::move(received)};
}

}  // namespace megatron
