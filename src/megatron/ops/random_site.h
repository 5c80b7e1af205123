// A place that draws random numbers during a forward pass (DESIGN: randomness has coordinates).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

struct DropoutSite {
  double probability = 0;      ///< of dropping; 0 = off
  std::uint64_t key = 0;       ///< philox_key(seed, site name)
  at::Tensor sample_ordinals;  ///< int64 [b] on the device of the numbers
  bool active() const { return probability > 0; }
};

}  // namespace megatron
