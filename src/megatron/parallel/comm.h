// A group of ranks that speak to each other: collectives and messages, by name, blocking or started
// and waited for. What carries them (memory of one process, shared memory of one host, Gloo, NCCL)
// is the business of its makers (communicators.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace megatron {

enum class ReduceOp : std::uint8_t { sum, average, max, min };

/// An operation under way. Its tensors belong to it until wait() returned; destruction waits too,
/// without throwing.
class Work {
 public:
  virtual ~Work() = default;
  /// Throws CommError when a peer failed or the timeout passed.
  virtual void wait() = 0;
};
using PendingWork = std::unique_ptr<Work>;

/// A peer has failed, left or been aborted, or the timeout has passed. The message names operation,
/// group and, where known, the peer.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class CommOperation : std::uint8_t {
  barrier,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send,
  recv
};

/// "all_reduce".
const char* name_of(CommOperation operation);

/// One call as a transport sees it: checked, and the same on every rank but for the tensors'
/// addresses.
struct CommCall {
  CommOperation operation = CommOperation::barrier;
  at::Tensor out = {};  ///< undefined for barrier and send
  at::Tensor in =
      {};  ///< undefined for barrier and recv; `out` itself for all_reduce and broadcast
  const char* what = "";
  ReduceOp reduce = ReduceOp::sum;
  std::int64_t peer = 0;  ///< root of a broadcast, partner of a message; in the group
};

/// "all_reduce 'grad norm'".
std::string describe(const CommCall& call);

/// Every call is collective over the group (send and recv: over the pair), in the same order on
/// every rank; messages of a pair keep their order and do not wait for collectives. Tensors are
/// contiguous, of equal type and size on all ranks; `what` (a literal) names the call in counters
/// and messages. Results have the same bits on every rank, and the same bits in every run. Sums of
/// 16-bit tensors are formed in float32 and rounded once where the transport allows it (not NCCL,
/// not Gloo).
class Comm {
 public:
  virtual ~Comm() = default;
  virtual std::int64_t rank() const = 0;  ///< in the group
  virtual std::int64_t size() const = 0;
  virtual const std::string& name() const = 0;                 ///< of the axis: "tp", "dp"
  virtual const std::vector<std::int64_t>& ranks() const = 0;  ///< of the world, ascending

  /// In place.
  PendingWork start_all_reduce(const at::Tensor& tensor, const char* what,
                               ReduceOp op = ReduceOp::sum);
  /// out [size·n, …] = the inputs [n, …] in rank order. `in` may be this rank's part of `out`.
  PendingWork start_all_gather(const at::Tensor& out, const at::Tensor& in, const char* what);
  /// out [n, …] = this rank's part of the sum of the inputs [size·n, …]. `out` may be this rank's
  /// part of `in`.
  PendingWork start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what,
                                   ReduceOp op = ReduceOp::sum);
  /// Part i of `in` (equal parts along dimension 0) goes to rank i; part j of `out` comes from rank
  /// j. Not in place.
  PendingWork start_all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what);
  PendingWork start_broadcast(const at::Tensor& tensor, std::int64_t root, const char* what);
  /// May end before the partner receives; a blocking send of a large tensor waits for it.
  PendingWork start_send(const at::Tensor& tensor, std::int64_t to, const char* what);
  PendingWork start_recv(const at::Tensor& tensor, std::int64_t from, const char* what);

  void all_reduce(const at::Tensor& tensor, const char* what, ReduceOp op = ReduceOp::sum);
  void all_gather(const at::Tensor& out, const at::Tensor& in, const char* what);
  void reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what,
                      ReduceOp op = ReduceOp::sum);
  void all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what);
  void broadcast(const at::Tensor& tensor, std::int64_t root, const char* what);
  void send(const at::Tensor& tensor, std::int64_t to, const char* what);
  void recv(const at::Tensor& tensor, std::int64_t from, const char* what);
  void barrier(const char* what);

 protected:
  virtual PendingWork start(CommCall call) = 0;
  virtual void run(CommCall call) = 0;

 private:
  CommCall checked(CommCall call) const;
};

}  // namespace megatron
