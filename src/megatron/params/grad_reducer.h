// Reduces gradients over the ranks that hold the same weights, bucket by bucket: by all-reduce, or
// by reduce-scatter into this rank's slice.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/params/grad_compression.h"
#include "megatron/params/param_bucket.h"

namespace megatron {

/// Returns how the collectives over the axes of `options` combine gradients.
inline ReduceOp reduction_of(const DataParallelOptions& options) {
  return options.averages ? ReduceOp::average : ReduceOp::sum;
}
/// Scales gradients so that collectives, which divide by the number of their ranks, divide by
/// options.num_averaged. Does nothing unless options.averages.
void scale_for_average(at::Tensor& grad, const DataParallelOptions& options);
/// Starts the reduce-scatter over options.shard of `flat`, which has the layout of a bucket, into
/// this rank's slice `own`.
PendingWork start_reduce_scatter(const at::Tensor& own, const at::Tensor& flat,
                                 const DataParallelOptions& options);

class GradReducer {
 public:
  /// Keeps a reference to `buckets`, which must outlive the reducer and must not move.
  explicit GradReducer(const std::vector<ParamBucket>& buckets);

  /// Starts the reduction of a bucket whose gradients are complete; does nothing for a bucket
  /// without gradients and for one of which slices are kept (UnitGradients). Collective over the
  /// bucket's data_parallel->all; all ranks must start buckets in ascending order.
  void start(std::size_t bucket);
  /// Waits for all started reductions. Afterwards each bucket, or this rank's slice of it, holds
  /// the sum.
  void finish();
  /// GradCompression::commit().
  void commit();

 private:
  /// Starts the reduction of a tensor that has the layout of the bucket into this rank's slice of
  /// it.
  PendingWork start_reduce(const ParamBucket& bucket, const at::Tensor& flat) const;

  const std::vector<ParamBucket>& buckets_;
  /// One for each group of ranks; null when its gradients are not compressed.
  std::unordered_map<const DataParallelOptions*, std::unique_ptr<GradCompression>> compressions_;
  std::vector<PendingWork> works_;
};

}  // namespace megatron
