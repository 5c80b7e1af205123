// Options that every model family takes when it builds a model.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "megatron/config/offload_plan.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/recompute_plan.h"

namespace megatron {

class OffloadStore;

struct MakeModelOptions {
  std::int64_t vocab_pad_multiple = 128;
  /// Dtype of the weights (see ParamStore). A stage without weights needs it for its activations.
  c10::ScalarType dtype = c10::kFloat;
  /// Assigns layers to pipeline stages; rank.pp selects this rank's. Null means the whole model.
  const PipelineLayout* layout = nullptr;
  const RecomputePlan* recompute = nullptr;  ///< null: nothing is recomputed
  const OffloadPlan* offload = nullptr;      ///< null: nothing is offloaded
  /// Receives the offloaded activations; set together with offload. Must outlive the model.
  OffloadStore* offload_store = nullptr;
};

}  // namespace megatron
