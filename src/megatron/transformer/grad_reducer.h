// Sums gradients over the ranks that hold the same weights, bucket by bucket: all-reduce, or reduce-scatter into this rank's slice.
#pragma once

#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/transformer/param_bucket.h"

namespace megatron {

class GradReducer {
 public:
  /// The buckets, which must outlive this, stay where they are.
  GradReducer(const std::vector<ParamBucket>& buckets, const DataParallel& options);

  /// Whether there is anybody to add to.
  bool is_needed() const { return options_.all.size > 1; }
  /// Starts the sum of a bucket whose gradients are complete. Collective over options.all, buckets in ascending order.
  void start(std::size_t bucket);
  /// Waits for all that were started: then the bucket, or its own slice, holds the sum.
  void finish();

 private:
  PendingWork started(const ParamBucket& bucket) const;

  const std::vector<ParamBucket>& buckets_;
  const DataParallel& options_;
  std::vector<PendingWork> works_;
};

}  // namespace megatron
