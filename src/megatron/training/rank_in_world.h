// The ranks that train together, as one of them is given them.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/parallel/communicators.h"
#include "megatron/training/open_device.h"

namespace megatron {

struct RankInWorld {
  Communicators* communicators = nullptr;   ///< null: this rank is alone; outlives the run
  std::int64_t local_world_size = 1;        ///< ranks that share this machine's processors
  std::optional<OpenedDevice> device = {};  ///< none: opened by set_up, as --device says
};

}  // namespace megatron
