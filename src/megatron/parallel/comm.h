// A group of ranks that speak to each other: collectives and messages, by name, blocking or started and waited for. What carries them (memory of
// one process, shared memory of one host, Gloo, NCCL) is the business of its makers (communicators.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace megatron {

enum class ReduceOp { sum, average, max, min };

/// An operation under way. Its tensors belong to it until wait() returned; destruction waits too, without throwing.
class Work {
 public:
  virtual ~Work() = default;
  /// Throws CommError when a peer failed or the timeout passed.
  virtual void wait() = 0;
};
using PendingWork = std::unique_ptr<Work>;

/// A peer has failed, left or been aborted, or the timeout has passed. The message names operation, group and, where known, the peer.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Every call is collective over the group (send and recv: over the pair), in the same order on every rank. Tensors are contiguous, of equal type
/// and size on all ranks; `what` (a literal) names the call in counters and messages. Results have the same bits on every rank, and the same bits
/// in every run. Sums of 16-bit tensors are formed in float32 and rounded once where the transport allows it (not NCCL, not Gloo).
class Comm {
 public:
  virtual ~Comm() = default;
  virtual std::int64_t rank() const = 0;  ///< in the group
  virtual std::int64_t size() const = 0;
  virtual const std::string& name() const = 0;                 ///< of the axis: "tp", "dp"
  virtual const std::vector<std::int64_t>& ranks() const = 0;  ///< of the world, ascending

  /// In place.
  virtual PendingWork start_all_reduce(const at::Tensor& tensor, const char* what, ReduceOp op = ReduceOp::sum) = 0;
  /// out [size·n, …] = the inputs [n, …] in rank order. `in` may be this rank's part of `out`.
  virtual PendingWork start_all_gather(const at::Tensor& out, const at::Tensor& in, const char* what) = 0;
  /// out [n, …] = this rank's part of the sum of the inputs [size·n, …]. `out` may be this rank's part of `in`.
  virtual PendingWork start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what, ReduceOp op = ReduceOp::sum) = 0;
  /// Part i of `in` (equal parts along dimension 0) goes to rank i; part j of `out` comes from rank j. Not in place.
  virtual PendingWork start_all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what) = 0;
  virtual PendingWork start_broadcast(const at::Tensor& tensor, std::int64_t root, const char* what) = 0;
  virtual PendingWork start_send(const at::Tensor& tensor, std::int64_t to, const char* what) = 0;
  virtual PendingWork start_recv(const at::Tensor& tensor, std::int64_t from, const char* what) = 0;

  void all_reduce(const at::Tensor& tensor, const char* what, ReduceOp op = ReduceOp::sum) { start_all_reduce(tensor, what, op)->wait(); }
  void all_gather(const at::Tensor& out, const at::Tensor& in, const char* what) { start_all_gather(out, in, what)->wait(); }
  void reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what, ReduceOp op = ReduceOp::sum) {
    start_reduce_scatter(out, in, what, op)->wait();
  }
  void all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what) { start_all_to_all(out, in, what)->wait(); }
  void broadcast(const at::Tensor& tensor, std::int64_t root, const char* what) { start_broadcast(tensor, root, what)->wait(); }
  void send(const at::Tensor& tensor, std::int64_t to, const char* what) { start_send(tensor, to, what)->wait(); }
  void recv(const at::Tensor& tensor, std::int64_t from, const char* what) { start_recv(tensor, from, what)->wait(); }
  virtual void barrier(const char* what) = 0;
};

}  // namespace megatron
