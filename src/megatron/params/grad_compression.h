// Compression of gradients for the reduction over the ranks that hold the same weights.
#pragma once

#include <functional>
#include <memory>

#include "megatron/parallel/comm.h"
#include "megatron/params/param_bucket.h"

namespace megatron {

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

/// Creates the compression that options.compression names; returns null for "none". Throws
/// UserError for an unknown name.
std::unique_ptr<GradCompression> make_grad_compression(const DataParallelOptions& options);

/// PowerSGD (Vogels, Karimireddy and Jaggi 2019). A gradient matrix M becomes P·Qᵀ, where P is
/// orthonormal and P and Q have options.compression_rank columns and are summed over ranks. The
/// error is kept and added to M of the next step. Biases, norms and small matrices are sent
/// uncompressed. Requires whole buckets, that is, no distributed optimizer. A step with non-finite
/// gradients does not change the kept error.
std::unique_ptr<GradCompression> make_low_rank_compression(const DataParallelOptions& options);

}  // namespace megatron
