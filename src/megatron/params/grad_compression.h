// Compression of gradients for the reduction over the ranks that hold the same weights.
#pragma once

#include <functional>
#include <memory>

#include "megatron/parallel/comm.h"
#include "megatron/params/param_bucket.h"

namespace megatron {

/// Returns work that waits for `first` and then runs `then` on the waiting thread, once.
PendingWork and_then(PendingWork first, std::function<void()> then);

/// Interface of a compression. Its state must see every bucket of every step.
class GradCompression {
 public:
  /// Starts the uncompressed reduction of a tensor that has the layout of the bucket into this
  /// rank's slice of it.
  using StartReduce = std::function<PendingWork(const at::Tensor& flat)>;

  virtual ~GradCompression() = default;
  /// Starts the reduction of a bucket's gradients. After the returned work has been waited for, the
  /// bucket (or this rank's slice of it) holds the sum, with equal bits on all ranks.
  virtual PendingWork start(const ParamBucket& bucket, const StartReduce& start_reduce) = 0;
  /// Keeps for the next step what the last sum of each bucket has left. Without it the same
  /// gradients have the same sum again.
  virtual void commit() {}
};

/// Creates the compression that options.compression names (none, bf16 or low-rank); returns null
/// for "none". Throws UserError for an unknown name.
std::unique_ptr<GradCompression> make_grad_compression(const DataParallelOptions& options);

}  // namespace megatron
