// What the launcher hands to each rank: its communicators, CPUs and device.
#pragma once

#include <optional>

#include "megatron/base/cpu_affinity.h"
#include "megatron/parallel/communicators.h"
#include "megatron/training/loop/open_device.h"

namespace megatron {

struct RankContext {
  Communicators* communicators = nullptr;   ///< null: single rank; must outlive the run
  CpuPartition cpus = {};                   ///< how the ranks of this host share its CPUs
  std::optional<OpenedDevice> device = {};  ///< nullopt: set_up() opens the device of --device
};

}  // namespace megatron
