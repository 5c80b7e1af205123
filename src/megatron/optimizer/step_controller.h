// What every optimizer step does before the update rules: check the gradients for NaN and infinity,
// compute their norm, decide whether the step is applied, unscale and clip, and move the loss
// scale. The scalars of the step live on the device, which decides; the host reads them once, after
// the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/optimizer_operations.h"
#include "megatron/optimizer/loss_scaling.h"
#include "megatron/optimizer/parameter_sums.h"
#include "megatron/optimizer/step.h"

namespace megatron {

class StepController {
 public:
  /// `clip_grad` 0 turns clipping off. `store` and `sums` must outlive the controller.
  StepController(const ParamStore& store, const ParameterSums& sums, double clip_grad,
                 const LossScaling& scaling);

  /// Queues the statistics of the finished gradients and the scalars of the next update. Collective
  /// over the shard and model axes of the store's groups().
  void begin_step(const StepOptions& options);
  /// Returns the scalars of the step, which lie on the device of the weights.
  const kernels::StepScalars* scalars() const { return scalars_on_device(); }

  /// Returns the loss scale of the next step: a float64 scalar on the device of the weights.
  at::Tensor loss_scale() const;
  /// Returns the statistics of the last step, a float64 vector on the device of the weights.
  at::Tensor step_stats() const { return scalars_; }
  /// Decodes step_stats(), copied to the host.
  StepResult result(const double* step_stats) const;

  /// Returns the number of applied steps.
  std::int64_t num_steps() const { return static_cast<std::int64_t>(read().num_steps); }
  void set_num_steps(std::int64_t steps);
  /// Returns nullopt unless the loss scale is dynamic.
  std::optional<LossScaleState> loss_scale_state() const;
  /// Has no effect unless the loss scale is dynamic.
  void set_loss_scale_state(const LossScaleState& state);

 private:
  kernels::StepScalars* scalars_on_device() const {
    return static_cast<kernels::StepScalars*>(scalars_.mutable_data_ptr());
  }
  kernels::StepScalars read() const;
  void write(kernels::StepScalars scalars);

  const ParameterSums& sums_;
  const kernels::OptimizerOperations& operations_;
  const kernels::StepRules rules_;
  at::Tensor scalars_, table_;
  kernels::StatisticsPlan plan_{};
};

}  // namespace megatron
