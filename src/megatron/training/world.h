// The ranks that train together, as one of them is given them.
#pragma once

#include <cstdint>

#include "megatron/parallel/communicators.h"

namespace megatron {

struct World {
  Communicators* communicators = nullptr;  ///< null: this rank is alone; outlives the run
  std::int64_t local_world_size = 1;       ///< ranks that share this machine's processors
};

}  // namespace megatron
