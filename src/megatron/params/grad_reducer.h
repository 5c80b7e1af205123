// Reduces gradients over the ranks that hold the same weights, bucket by bucket: by all-reduce, or
// by reduce-scatter into this rank's slice.
#pragma once

#include <memory>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/params/grad_compression.h"
#include "megatron/params/param_bucket.h"

namespace megatron {

class GradReducer {
 public:
  /// Keeps a reference to `buckets`, which must outlive the reducer and must not move.
  GradReducer(const std::vector<ParamBucket>& buckets, const DataParallelOptions& options);

  /// Starts the reduction of a bucket whose gradients are complete. Collective over options.all;
  /// all ranks must start buckets in ascending order.
  void start(std::size_t bucket);
  /// Waits for all started reductions. Afterwards each bucket, or this rank's slice of it, holds
  /// the sum.
  void finish();
  /// GradCompression::commit().
  void commit() {
    if (compression_) compression_->commit();
  }

 private:
  /// Starts the reduction of a tensor that has the layout of the bucket into this rank's slice of
  /// it.
  PendingWork start_reduce(const ParamBucket& bucket, const at::Tensor& flat) const;

  const std::vector<ParamBucket>& buckets_;
  const DataParallelOptions& options_;
  std::unique_ptr<GradCompression> compression_;  ///< null when gradients are not compressed
  std::vector<PendingWork> works_;
};

}  // namespace megatron
