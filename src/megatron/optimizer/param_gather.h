// All-gathers the weights after each rank of a distributed optimizer has updated its slices, one
// collective per bucket. The wait happens at once or when a weight of the bucket is first read.
#pragma once

#include <unordered_map>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/params/param_store.h"

namespace megatron {

class ParamGather : private WeightReadHook {
 public:
  /// `main[b]` holds all float32 weights of bucket b when the bucket is precise and has separate
  /// main weights; otherwise it is ignored.
  ParamGather(const ParamStore& store, const std::vector<at::Tensor>& main);
  ParamGather(const ParamGather&) = delete;
  ParamGather& operator=(const ParamGather&) = delete;
  ~ParamGather() override;

  /// Starts the all-gathers in the order in which forward reads the weights. Without overlap it
  /// also waits for them. Collective over the shard axis.
  void start();
  /// Waits for all pending all-gathers.
  void finish();

 private:
  void open(const Parameter& parameter) override;
  void finish(std::size_t bucket);

  const ParamStore& store_;
  std::vector<at::Tensor> fp32_values_;  ///< per bucket: float32 weights to gather in place of the
                                         ///< bucket's value, or undefined
  std::unordered_map<const Parameter*, std::size_t> bucket_of_;
  std::vector<PendingWork> works_;  ///< per bucket; null when no all-gather is pending
};

}  // namespace megatron
