// The ranks that train together, as one of them is given them.
#pragma once

#include <optional>

#include "megatron/base/cpu_affinity.h"
#include "megatron/parallel/communicators.h"
#include "megatron/training/loop/open_device.h"

namespace megatron {

struct RankContext {
  Communicators* communicators = nullptr;   ///< null: this rank is alone; outlives the run
  CpuPartition cpus = {};                   ///< of this host's ranks
  std::optional<OpenedDevice> device = {};  ///< none: opened by set_up, as --device says
};

}  // namespace megatron
