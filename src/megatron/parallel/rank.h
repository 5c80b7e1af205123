// A rank is an object: its place on every axis, its device and its seed. Passed by reference; there is no global state.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "megatron/parallel/axis.h"

namespace megatron {

struct Rank {
  Axis tp{"tp"}, dp{"dp"}, pp{"pp"};
  c10::Device device{c10::kCPU};
  std::uint64_t seed = 1234;  ///< of every random site (base/philox.h)
};

}  // namespace megatron
