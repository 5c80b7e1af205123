// A dropout site: a place in the model that draws random numbers in a forward pass. Every number is
// a function of (seed, site name, sample ordinal, element index).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron {

/// The key and the samples of one dropout site.
struct DropoutSite {
  double probability = 0;      ///< probability of dropping an element; 0 turns dropout off
  std::uint64_t key = 0;       ///< philox_key(seed, site name)
  at::Tensor sample_ordinals;  ///< int64 [b] on the device of the activations
  bool active() const { return probability > 0; }
};

}  // namespace megatron
