// What training changes: the state that a checkpoint saves and restores, and the current batch.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/json_value.h"
#include "megatron/checkpoint/training_progress.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/models/model.h"
#include "megatron/ops/offload_store.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/optimizer/param_scheduler.h"
#include "megatron/params/param_store.h"

namespace megatron {

struct TrainingState {
  /// Where this rank's activations and weights wait; null: they stay in memory.
  std::shared_ptr<OffloadStore> offload_store = {};
  std::unique_ptr<Model> model = {};  ///< the stages that this rank holds
  std::unique_ptr<ParamStore> weights = {};
  std::unique_ptr<Optimizer> optimizer = {};  ///< null with --skip-train
  OptimizerParamScheduler scheduler{ParamSchedule{}};
  TrainingProgress progress = {};
  StepBatch batch = {};  ///< The batch of the current step, or of the last one.
  /// State of a step that must be run again (resilience/reruns/); null: none.
  JsonValue rerun_state = {};
  /// Describes non-finite weights of the loaded checkpoint; empty if none.
  std::string non_finite_checkpoint = {};
};

}  // namespace megatron
