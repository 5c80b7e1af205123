// What gradients travel as between the ranks that hold the same weights, when sending them as they
// are costs too much.
#pragma once

#include <functional>
#include <memory>

#include "megatron/parallel/comm.h"
#include "megatron/params/param_bucket.h"

namespace megatron {

class GradCompression {
 public:
  /// Starts the sum of a tensor that lies as the bucket does, into the rank's slice of it, as
  /// gradients go without compression.
  using StartReduce = std::function<PendingWork(const at::Tensor& flat)>;

  virtual ~GradCompression() = default;
  /// Starts the sum of a bucket's gradients; when it was waited for, they (or the rank's slice)
  /// hold it, with the same bits on all ranks.
  virtual PendingWork start(const ParamBucket& bucket, const StartReduce& start_reduce) = 0;
  /// Keeps for the next step what the last sum of each bucket has left. Without it the same
  /// gradients have the same sum again.
  virtual void commit() {}
};

/// What options.compression names; null for none.
std::unique_ptr<GradCompression> make_grad_compression(const DataParallelOptions& options);

/// PowerSGD (Vogels, Karimireddy and Jaggi 2019): a matrix M of gradients becomes P·Qᵀ, where P,
/// orthonormal, and Q have options.compression_rank columns and are summed over ranks; what that
/// leaves out is remembered and added to the next step's M. Biases, norms and small matrices travel
/// as they are. Needs whole buckets: no distributed optimizer. A step with gradients that are not
/// finite is forgotten.
std::unique_ptr<GradCompression> make_low_rank_compression(const DataParallelOptions& options);

}  // namespace megatron
