// A process group: named collectives and point-to-point messages, blocking or asynchronous.
// communicators.h makes the groups and chooses the transport (threads, shared memory, Gloo, NCCL).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "megatron/parallel/current_layer.h"

namespace megatron {

enum class ReduceOp : std::uint8_t { sum, average, max };

/// An asynchronous operation. The caller must not touch its tensors until wait() has returned. The
/// destructor waits too, but does not throw.
class Work {
 public:
  virtual ~Work() = default;
  /// Throws CommError when a peer has failed or the timeout has passed.
  virtual void wait() = 0;
  /// Returns true only if wait() would return or throw at once. False is always allowed.
  virtual bool is_done() const { return false; }
};
using PendingWork = std::unique_ptr<Work>;

/// Thrown when a peer has failed, has left or has been aborted, or when the timeout has passed. The
/// message names the operation, the group and, where known, the peer.
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

/// Returns the name in snake_case, such as "all_reduce".
const char* name_of(CommOperation operation);
/// Returns whether the operation is one of two partners: send or recv.
inline bool is_message(CommOperation operation) {
  return operation == CommOperation::send || operation == CommOperation::recv;
}

/// The rows (dimension 0) that an uneven collective moves between this rank and each rank of the
/// group. Both lists have one element per rank.
struct RowCounts {
  std::vector<std::int64_t> out = {};  ///< rows of `out` that come from each rank
  std::vector<std::int64_t> in = {};   ///< rows of `in` that go to each rank
};

/// The arguments of one call, already checked. They are equal on every rank except for the
/// addresses of the tensors and, in an uneven call, for what RowCounts says.
struct CommCall {
  CommOperation operation = CommOperation::barrier;
  at::Tensor out = {};  ///< Undefined for barrier and send.
  /// Undefined for barrier and recv; the same tensor as `out` for all_reduce and broadcast.
  at::Tensor in = {};
  const char* what = "";
  ReduceOp reduce = ReduceOp::sum;
  std::int64_t peer = 0;  ///< Root of a broadcast or partner of a message: a rank of the group.
  /// The parts of an uneven collective: `out` of an all-gather, both of an all-to-all. Empty when
  /// the parts are equal.
  RowCounts rows = {};
  std::string axis = {};  ///< Name of the group that was called; it is in counters and messages.
  LayerName layer = {};   ///< The layer that the caller computes; null outside of every layer.
  bool is_uneven() const { return !rows.out.empty() || !rows.in.empty(); }
};

/// Returns the operation and its name, such as "all_reduce 'grad norm'".
std::string describe(const CommCall& call);
/// Also names the axis and the layer: "all_reduce 'linear_fc2' on tp in decoder.layers.3".
std::string describe_with_place(const CommCall& call);

/// Every call is collective over the group (send and recv: over the pair), and all ranks must make
/// their calls in the same order. Messages of a pair stay in order and do not wait for collectives.
/// Tensors must be contiguous and have equal type and, but for uneven collectives, equal size on
/// all ranks. `what` must be a string literal; it names the call in counters and messages. Results
/// are bit-identical on every rank and in every run. Sums of 16-bit tensors are accumulated in
/// float32 and rounded once (over several hosts: once per level), except on NCCL, which rounds by
/// its own rules.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual std::int64_t rank() const = 0;  ///< Rank in the group.
  virtual std::int64_t size() const = 0;
  virtual const std::string& name() const = 0;  ///< Name of the axis, such as "tp" or "dp".
  virtual const std::vector<std::int64_t>& ranks() const = 0;  ///< World ranks, ascending.

  /// Reduces `tensor` in place.
  PendingWork start_all_reduce(const at::Tensor& tensor, const char* what,
                               ReduceOp op = ReduceOp::sum);
  /// Writes the inputs [n, …] in rank order to `out` [size·n, …]. `in` may be this rank's part of
  /// `out`.
  PendingWork start_all_gather(const at::Tensor& out, const at::Tensor& in, const char* what);
  /// Writes this rank's part of the reduced inputs [size·n, …] to `out` [n, …]. `out` may be this
  /// rank's part of `in`.
  PendingWork start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what,
                                   ReduceOp op = ReduceOp::sum);
  /// Sends part i of `in` to rank i and receives part j of `out` from rank j. Parts lie along
  /// dimension 0. They are equal, or with `rows`, rows.in[i] rows go to rank i and rows.out[j] rows
  /// come from rank j; it throws CommError on every rank when a rank expects another number than
  /// its peer sends (on NCCL nothing is compared). `out` and `in` must not overlap.
  PendingWork start_all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what,
                               const RowCounts& rows = {});
  /// May complete before the partner receives. A blocking send of a large tensor waits for the
  /// partner.
  PendingWork start_send(const at::Tensor& tensor, std::int64_t to, const char* what);
  PendingWork start_recv(const at::Tensor& tensor, std::int64_t from, const char* what);

  void all_reduce(const at::Tensor& tensor, const char* what, ReduceOp op = ReduceOp::sum);
  /// With `rows`, equal on all ranks, rank j contributes rows[j] rows.
  void all_gather(const at::Tensor& out, const at::Tensor& in, const char* what,
                  const std::vector<std::int64_t>& rows = {});
  void reduce_scatter(const at::Tensor& out, const at::Tensor& in, const char* what,
                      ReduceOp op = ReduceOp::sum);
  void all_to_all(const at::Tensor& out, const at::Tensor& in, const char* what,
                  const RowCounts& rows = {});
  void broadcast(const at::Tensor& tensor, std::int64_t root, const char* what);
  void send(const at::Tensor& tensor, std::int64_t to, const char* what);
  void recv(const at::Tensor& tensor, std::int64_t from, const char* what);
  void barrier(const char* what);

 protected:
  virtual PendingWork start(CommCall call) = 0;
  virtual void run(CommCall call) = 0;
  /// Forward a call that this group has checked to another group of the same ranks.
  static PendingWork start_on(Comm& comm, CommCall call) { return comm.start(std::move(call)); }
  static void run_on(Comm& comm, CommCall call) { comm.run(std::move(call)); }

 private:
  CommCall checked(CommCall call) const;
  void check_sizes(const CommCall& call) const;
  void check_rows(const CommCall& call) const;
};

}  // namespace megatron
