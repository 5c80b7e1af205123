// The order in which a run with --dataloader-type cyclic takes samples, over all data-parallel
// ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatron/datasets/sampler.h"

namespace megatron {

/// Returns sample numbers without end, in the order of the ordinals that the samplers of all ranks
/// give them.
class CyclicOrder {
 public:
  /// `consumed_samples` of the options may be any number. Kind and rank are ignored.
  explicit CyclicOrder(const SamplerOptions& options);
  std::int64_t next();

 private:
  void take_round();

  std::vector<Sampler> ranks_;
  std::vector<std::int64_t> round_;  ///< the samples of one microbatch of each rank
  std::size_t at_ = 0;
};

}  // namespace megatron
