// Gradients of which each rank keeps its slice only (ZeRO-2 and above). A unit of the model has
// whole gradients from the first contribution of a microbatch until its backward is done; then they
// are reduce-scattered and added to the slices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/params/param_bucket.h"
#include "megatron/params/unit_buffers.h"

namespace megatron {

class UnitGradients {
 public:
  /// How the owner of the parameters changes them.
  struct Owner {
    /// Makes the gradients of bucket `index` views of a tensor whose content is not used, or takes
    /// their storage away when it is undefined.
    std::function<void(std::size_t index, const at::Tensor& grad)> bind;
    /// Zeroes the bound gradients of bucket `index` without a contribution.
    std::function<void(std::size_t index)> zero_without_contribution;
  };

  /// `buckets` must outlive this and must not move.
  UnitGradients(const std::vector<ParamBucket>& buckets, c10::Device device, Owner owner);

  /// Makes the slices logically zero and forgets unfinished gradients.
  void begin_step();
  /// Gives storage to the gradients of the unit of bucket `index`, to which a contribution comes.
  /// Backward visits units in their order, so it has finished those before: their reductions start
  /// here. Collective over their shard axes.
  void open(std::size_t index);
  /// Starts the reductions of all units of which a backward pass of one microbatch, or its W step,
  /// has run. Collective over their shard axes.
  void end_backward();
  /// Completes the slices: waits for all reductions and adds instances. Collective over the axes of
  /// the buckets' data_parallel.
  void finish();
  /// Returns the bytes of gradients that are not yet reduced and of the buffers that wait for
  /// others.
  std::int64_t held_bytes() const;

 private:
  struct Unit {
    std::vector<std::size_t> buckets;  ///< indices
    std::int64_t num_bytes = 0;
  };
  /// A reduction that has started. `parts[i]` will be added to `sums[i]`.
  struct Reduction {
    std::size_t unit = 0;
    at::Tensor buffer;
    std::vector<PendingWork> works = {};
    std::vector<at::Tensor> parts = {}, sums = {};
  };

  void reduce_before(std::size_t unit);
  /// Completes the reductions of units from `unit` on.
  void complete_from(std::size_t unit);
  void complete_oldest();
  /// Starts the reduction of a unit's gradients, which are in `buffer`.
  Reduction start_reduction(std::size_t unit, at::Tensor buffer);

  const std::vector<ParamBucket>& buckets_;
  Owner owner_;
  bool overlaps_ = false;
  std::vector<Unit> units_;
  UnitBuffers buffers_;
  std::map<std::size_t, at::Tensor> open_;  ///< unit → buffer, in the order of backward
  std::deque<Reduction> reductions_;
  std::vector<bool> is_fresh_;  ///< one per bucket: its slice has no contribution in this step
};

}  // namespace megatron
