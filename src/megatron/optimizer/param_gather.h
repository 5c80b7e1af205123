// Makes the weights whole after each rank of a distributed optimizer has updated its slices: an
// all-gather for each bucket, waited for at once or when one of the bucket's weights is first read.
#pragma once

#include <unordered_map>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/params/param_store.h"

namespace megatron {

class ParamGather : private WeightReadHook {
 public:
  /// `main[b]` holds the float32 weights of bucket b whole where the bucket is precise and they are
  /// separate; else it is not looked at.
  ParamGather(const ParamStore& store, const std::vector<at::Tensor>& main);
  ParamGather(const ParamGather&) = delete;
  ParamGather& operator=(const ParamGather&) = delete;
  ~ParamGather() override;

  /// Starts the gathers in the order of forward; without overlap they are over on return.
  /// Collective over the shard axis.
  void start();
  /// Waits for all.
  void finish();

 private:
  void open(const Parameter& parameter) override;
  void finish(std::size_t bucket);

  const ParamStore& store_;
  std::vector<at::Tensor> fp32_values_;  ///< of each bucket: float32 weights that travel in its
                                         ///< value's stead, or undefined
  std::unordered_map<const Parameter*, std::size_t> bucket_of_;
  std::vector<PendingWork> works_;  ///< of each bucket, null when it is there
};

}  // namespace megatron
