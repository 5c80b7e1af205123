// What a training run is, decided before its model is built. Nothing changes it afterwards.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/settings.h"
#include "megatron/models/model.h"
#include "megatron/models/model_cost.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/rank.h"
#include "megatron/pipeline/pipeline_plan.h"

namespace megatron {

struct TrainingPlan {
  Settings settings;  ///< resolved and validated
  const ModelFamily* family;
  std::vector<ModelUnit> units;  ///< of the whole model, of which the rank may hold a part
  Rank rank;
  std::string device_name;  ///< the GPU's name as reported by the driver; empty on a CPU
  std::optional<CheckpointSource> source;  ///< the checkpoint that --load names
  /// Tokenizer files that checkpoints include; only on the rank that writes them.
  AuxiliaryFiles tokenizer_files;
  PipelinePlan pipeline;
  NumMicrobatchesCalculator batches;
  ModelDimensions dimensions;
  SampleFlops flops_per_sample;
  c10::ScalarType params_dtype;  ///< of the weights that layers compute with

  /// Returns the FLOPs of a step.
  double flops(const StepBatch& batch) const {
    return flops_per_sample.causal * static_cast<double>(batch.running_batch_size);
  }
};

}  // namespace megatron
