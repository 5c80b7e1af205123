// Options that every model family takes when it builds a model.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "megatron/config/activation_plan.h"
#include "megatron/config/pipeline_layout.h"

namespace megatron {

class OffloadStore;

struct MakeModelOptions {
  std::int64_t vocab_pad_multiple = 128;
  /// Dtype of the weights (see ParamStore). A stage without weights needs it for its activations.
  c10::ScalarType dtype = c10::kFloat;
  /// Assigns layers to pipeline stages; rank.pp selects this rank's. Null means the whole model.
  const PipelineLayout* layout = nullptr;
  const ActivationPlan* activations = nullptr;  ///< null: layers keep their activations
  /// Receives what is offloaded of them; null: nothing is. Must outlive the model.
  OffloadStore* offload_store = nullptr;
};

}  // namespace megatron
