// What the launcher hands to each rank: its communicators, CPUs and device.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "megatron/base/cpu_affinity.h"
#include "megatron/datasets/builder.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/communicators.h"
#include "megatron/training/run/open_device.h"

namespace megatron {

class KeptModel;

struct RankContext {
  Communicators* communicators = nullptr;   ///< null: single rank; must outlive the run
  KeptModel* kept = nullptr;                ///< of an earlier start in this process; or null
  SetDeadline set_deadline = {};            ///< of this rank; null: it is not watched
  CpuPartition cpus = {};                   ///< how the ranks of this host share its CPUs
  std::int64_t ranks_on_host = 1;           ///< which share its memory
  std::optional<OpenedDevice> device = {};  ///< nullopt: set_up() opens the device of --device
  /// The dtype of the weights; nullopt: that of --bf16 or --fp16. No flag chooses float64, in which
  /// tests compare layouts.
  std::optional<c10::ScalarType> params_dtype = {};
  const ModelFamilies* families = &library_families();
  DatasetBuilder datasets = {};  ///< the samples of --dataloader-type external; else empty
};

}  // namespace megatron
