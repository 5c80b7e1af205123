// What the routers of a model count during a step: the load of each expert, dropped choices, the
// entropy of the router and its auxiliary losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// The sums of one router over the microbatches of a step, on its own rank: float64
/// [experts + kNumSums], the load of each expert (choices that were not dropped) and then the sums
/// below. Summed over tp, dp and cp they are those of the whole batch.
struct RoutingStatistics {
  enum Sum : std::int64_t {
    dropped,
    entropy,
    tokens,
    aux_loss,
    seq_aux_loss,
    global_aux_loss,
    z_loss
  };
  static constexpr std::int64_t kNumSums = 7;

  std::int64_t layer = 0;  ///< 0-based index in the whole model
  at::Tensor sums;         ///< undefined before the first microbatch
};

}  // namespace megatron
