// Sums gradients over the ranks that hold the same weights, bucket by bucket: all-reduce, or
// reduce-scatter into this rank's slice.
#pragma once

#include <memory>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/params/grad_compression.h"
#include "megatron/params/param_bucket.h"

namespace megatron {

class GradReducer {
 public:
  /// The buckets, which must outlive this, stay where they are.
  GradReducer(const std::vector<ParamBucket>& buckets, const DataParallelOptions& options);

  /// Starts the sum of a bucket whose gradients are complete. Collective over options.all, buckets
  /// in ascending order.
  void start(std::size_t bucket);
  /// Waits for all that were start_reduce: then the bucket, or its own slice, holds the sum.
  void finish();
  /// GradCompression::commit().
  void commit() {
    if (compression_) compression_->commit();
  }

 private:
  /// The sum of a tensor that lies as the bucket does, into this rank's slice of it.
  PendingWork start_reduce(const ParamBucket& bucket, const at::Tensor& flat) const;

  const std::vector<ParamBucket>& buckets_;
  const DataParallelOptions& options_;
  std::unique_ptr<GradCompression> compression_;  ///< null: none
  std::vector<PendingWork> works_;
};

}  // namespace megatron
