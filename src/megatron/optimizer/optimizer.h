// The optimizer step, from main gradients to new weights: loss scaling, norm, clipping and skipped
// steps, then the update rules, each over a set of parameters.
//
// A step is queued on the device, which decides whether to apply it. The host learns the outcome
// from `step_stats`, which it reads once, after the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/optimizer/loss_scaling.h"
#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/optimizer_state.h"
#include "megatron/optimizer/update_rule.h"
#include "megatron/params/param_store.h"

namespace megatron {

struct OptimizerConfig;

struct StepResult {
  bool applied = true;   ///< false when a gradient or the loss was not finite; then only a dynamic
                         ///< loss scale has changed
  double grad_norm = 0;  ///< 2-norm of the unscaled gradients before clipping: per-tensor float64
                         ///< sums of squares, added in canonical name order
  std::int64_t num_zeros = 0;             ///< zeros in the gradients without padding rows; 0 unless
                                          ///< StepOptions::count_zeros is set
  std::string non_finite_parameter = {};  ///< first parameter in canonical order with a NaN or
                                          ///< infinite gradient; empty when there is none
  double loss_scale = 1;                  ///< loss scale of the next step
};

/// Times the phases of a step under Megatron's timer names.
class StepTimers {
 public:
  virtual ~StepTimers() = default;
  virtual void begin(const char* phase) = 0;
  virtual void end(const char* phase) = 0;
};

struct StepOptions {
  double lr = 0;
  std::optional<double> decoupled_lr = {};  ///< for parameters tagged embedding; nullopt uses `lr`
  double weight_decay = 0;                  ///< for parameters without the no_decay tag
  bool count_zeros = false;
  at::Tensor found_inf = {};     ///< float64 scalar on the weights' device, equal on all ranks; the
                                 ///< step is skipped when it is not 0. May be undefined
  StepTimers* timers = nullptr;  ///< may be null
};

/// Times a phase during its lifetime. `timers` may be null.
class PhaseTimer {
 public:
  PhaseTimer(StepTimers* timers, const char* phase) : timers_(timers), phase_(phase) {
    if (timers_ != nullptr) timers_->begin(phase_);
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  ~PhaseTimer() {
    if (timers_ != nullptr) timers_->end(phase_);
  }

 private:
  StepTimers* timers_;
  const char* phase_;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Returns the loss scale of the next step: a float64 scalar on the device of the weights.
  virtual at::Tensor loss_scale() const = 0;
  /// Queues one step: checks the gradients for NaN and infinity, unscales and clips them, and
  /// updates the weights. The gradients must be finished. Collective over the store's shard and
  /// model axes.
  virtual void queue_step(const StepOptions& options) = 0;
  /// Returns the statistics of the last step, a float64 vector on the device of the weights.
  virtual at::Tensor step_stats() const = 0;
  /// Decodes `step_stats`, copied to the host.
  virtual StepResult result(const double* step_stats) const = 0;
  /// Queues a step, waits for it and returns its result. Collective as queue_step().
  StepResult step(const StepOptions& options);

  virtual MainParameters& main_parameters() = 0;
  /// Calls `visitor` with the state of every piece of this rank: Adam's "exp_avg" and "exp_avg_sq",
  /// SGD's "momentum_buffer". The visitor may fill the tensor but must not replace it.
  virtual void visit_state(const OptimizerState::Visitor& visitor) = 0;
  /// Calls `lister` with a reader of the state of every piece of this rank.
  virtual void list_state(const OptimizerState::Lister& lister) = 0;
  /// Returns the names <state>.<parameter> of the state of the whole model, ascending.
  virtual const std::vector<std::string>& state_tensors() const = 0;
  /// Returns the bytes of the state in memory, without main weights.
  virtual std::int64_t num_state_bytes() const = 0;
  /// Returns the number of updates applied so far, which Adam's bias correction uses. Checkpoints
  /// store it with the state.
  virtual std::int64_t num_steps() const = 0;
  virtual void set_num_steps(std::int64_t steps) = 0;
  /// Returns nullopt unless the loss scale is dynamic.
  virtual std::optional<LossScaleState> loss_scale_state() const = 0;
  /// Has no effect unless the loss scale is dynamic.
  virtual void set_loss_scale_state(const LossScaleState& state) = 0;
};

/// Creates the optimizer that `config.optimizer` names for the parameters of `store`, which must
/// outlive it. Collective over store.model_axis().
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store,
                                          const LossScaling& scaling = {},
                                          const StateOffloadOptions& offload = {});

/// Makes update rules for the parameters of a store and their main weights.
using MakeUpdateRules = std::function<std::vector<std::unique_ptr<UpdateRule>>(
    const ParamStore& store, const MainParameters& main)>;

/// Creates an optimizer of several rules, of which exactly one must update each trained parameter.
/// Clips as `config` says. Collective over store.model_axis().
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store,
                                          const LossScaling& scaling,
                                          const MakeUpdateRules& make_rules,
                                          const StateOffloadOptions& offload = {});

}  // namespace megatron
