// The update: from main gradients to new weights, with loss scaling, clipping, groups of parameters
// and 16-bit storage.
//
// A step is queued on the device and decides there whether it is applied; the host learns what
// happened when it reads `step_stats`, once, after the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/loss_scaling.h"
#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/optimizer_state.h"
#include "megatron/params/param_store.h"

namespace megatron {

struct StepResult {
  bool applied =
      true;  ///< false: a gradient or loss was not finite, nothing changed but a dynamic loss scale
  double grad_norm = 0;  ///< √ of the per-tensor float64 sums added in canonical name order,
                         ///< unscaled, before clipping
  std::int64_t num_zeros =
      0;  ///< zeros in the gradients, when asked for; padding rows are not counted
  std::string
      non_finite_parameter;  ///< first (canonical order) parameter with a NaN or infinite gradient
  double loss_scale = 1;     ///< of the next step
};

/// Times the phases of a step under the names of Megatron's timers.
class StepTimers {
 public:
  virtual ~StepTimers() = default;
  virtual void begin(const char* phase) = 0;
  virtual void end(const char* phase) = 0;
};

struct StepOptions {
  double lr = 0;
  std::optional<double> decoupled_lr = {};  ///< of parameters tagged embedding; none: lr
  double weight_decay = 0;                  ///< of parameters without the no_decay tag
  bool count_zeros = false;
  at::Tensor found_inf = {};     ///< float64 scalar on the device of the weights, the same on all
                                 ///< ranks: if it is not 0, nothing changes; undefined: none
  StepTimers* timers = nullptr;  ///< may be null
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// The loss scale of the coming step: a float64 scalar on the device of the weights.
  virtual at::Tensor loss_scale() const = 0;
  /// Queues a whole step: checks the gradients for NaN and infinity, unscales and clips them and
  /// updates the weights. Gradients must be finished. Collective over the store's shard and model
  /// axes.
  virtual void queue_step(const StepOptions& options) = 0;
  /// Returns the statistics of the last step, a float64 vector on the device of the weights.
  virtual at::Tensor step_stats() const = 0;
  /// The meaning of step_stats copied to the host.
  virtual StepResult result(const double* step_stats) const = 0;
  /// Queues a step and waits for what it finds.
  StepResult step(const StepOptions& options);

  virtual MainParameters& main_parameters() = 0;
  /// Visits the state of every piece of this rank: Adam's "exp_avg" and "exp_avg_sq", SGD's
  /// "momentum_buffer". The visitor may fill the tensor, not replace it.
  virtual void visit_state(const OptimizerState::Visitor& visitor) = 0;
  virtual std::vector<std::string> state_names() const = 0;
  virtual std::int64_t num_state_bytes() const = 0;
  /// Updates applied so far (Adam's bias correction); saved and restored with the state.
  virtual std::int64_t num_steps() const = 0;
  virtual void set_num_steps(std::int64_t steps) = 0;
  /// Nothing unless the loss scale is dynamic.
  virtual std::optional<LossScaleState> loss_scale_state() const = 0;
  /// Ignored unless the loss scale is dynamic.
  virtual void set_loss_scale_state(const LossScaleState& state) = 0;
};

/// The optimizer that `config.optimizer` names, over the parameters of `store`, which must outlive
/// it.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store,
                                          const LossScaling& scaling = {});

}  // namespace megatron
