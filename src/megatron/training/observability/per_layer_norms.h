// Computes per-layer norms at intervals (--log-layer-norms-interval): norms of weights, gradients,
// weight updates and activations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/models/model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Euclidean norms of one parameter in one step.
struct ParameterNorms {
  std::string name;
  double weight = 0;    ///< before the step; norm of the main parameter where there is one
  double gradient = 0;  ///< unscaled, before clipping
  double update = 0;    ///< norm of the weight change
};

struct PerLayerNorms {
  std::vector<ParameterNorms> parameters;  ///< in canonical order
  std::map<std::string, double>
      activation_rms;  ///< root mean square of each unit's output in the step's last microbatch
};

/// Records the norms of one step. Create it before forward, then call after_backward() and
/// after_update(). It occupies the model's unit hooks until after_backward().
class PerLayerNormRecorder : private UnitHooks {
 public:
  PerLayerNormRecorder(Model& model, ParamStore& weights, Optimizer& optimizer);
  PerLayerNormRecorder(const PerLayerNormRecorder&) = delete;
  PerLayerNormRecorder& operator=(const PerLayerNormRecorder&) = delete;

  /// Call it when the gradients are final and the weights are unchanged. Like after_update(), it is
  /// collective over the store's shard and model axes.
  void after_backward();
  /// Call it after the weight update; waits for the device.
  PerLayerNorms after_update();

 private:
  void after_forward(const Module& unit, const at::Tensor& output) override;
  void reduce_activation_rms();

  ParamStore& weights_;
  Optimizer& optimizer_;
  std::map<std::string, at::Tensor> mean_squares_;
  std::vector<at::Tensor> weights_before_;
  PerLayerNorms norms_;
  std::optional<UnitHooksScope> hooks_;  ///< released after backward
};

/// Returns one line per unit of the whole model: norm of its weights, norm of its gradients, update
/// norm / weight norm, and rms of its output.
std::string per_layer_norms_text(const PerLayerNorms& table, const std::vector<ModelUnit>& units,
                                 std::int64_t iteration);

/// Returns {"parameters": {name: {"weight", "gradient", "update_ratio"}}, "activation_rms": {unit:
/// x}}.
JsonText per_layer_norms_json(const PerLayerNorms& table);

}  // namespace megatron
