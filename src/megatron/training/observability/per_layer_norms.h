// Norms of every layer at intervals (--log-layer-norms-interval): weights, gradients, how far a
// step moves the weights, and activations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/models/language_model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Euclidean norms of one parameter in one step.
struct ParameterNorms {
  std::string name;
  double weight = 0;    ///< before the step; of the main parameter where there is one
  double gradient = 0;  ///< unscaled, before clipping
  double update = 0;    ///< of the change
};

struct PerLayerNorms {
  std::vector<ParameterNorms> parameters;  ///< in canonical order
  std::map<std::string, double>
      activation_rms;  ///< of each unit's output in the step's last microbatch
};

/// Watches one step: create before forward, call the others at their moments. The model's hooks are
/// taken for that time.
class PerLayerNormRecorder : private UnitHooks {
 public:
  PerLayerNormRecorder(LanguageModel& model, ParamStore& weights, Optimizer& optimizer);
  PerLayerNormRecorder(const PerLayerNormRecorder&) = delete;
  PerLayerNormRecorder& operator=(const PerLayerNormRecorder&) = delete;

  /// The step's gradients are finished, the weights not changed yet. Both are collective over the
  /// store's shard and model axes.
  void after_backward();
  /// The weights have changed; waits for the device.
  PerLayerNorms after_update();

 private:
  void after_forward(const Module& unit, const at::Tensor& output) override;
  void reduce_activation_rms();

  ParamStore& weights_;
  Optimizer& optimizer_;
  std::map<std::string, at::Tensor> mean_squares_;
  std::vector<at::Tensor> weights_before_;
  PerLayerNorms norms_;
  std::optional<UnitHooksScope> hooks_;  ///< until backward is done
};

/// One line per layer: norm of its weights, of its gradients, update / weight, rms of its output.
std::string per_layer_norms_text(const PerLayerNorms& table, std::int64_t iteration);

/// {"parameters": {name: {"weight", "gradient", "update_ratio"}}, "activation_rms": {unit: x}}
OrderedJson per_layer_norms_json(const PerLayerNorms& table);

}  // namespace megatron
