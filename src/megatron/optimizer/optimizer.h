// The update rule: from main gradients to new weights, with clipping and per-parameter weight decay.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "megatron/config/optimizer_config.h"
#include "megatron/transformer/param_store.h"

namespace megatron {

struct StepResult {
  bool applied = true;               ///< false: non-finite gradients, nothing changed
  double grad_norm = 0;              ///< √ of the per-tensor float64 sums added in canonical name order, before clipping
  std::int64_t num_zeros = 0;        ///< zeros in the gradients, when asked for
  std::string non_finite_parameter;  ///< first (canonical order) parameter with a NaN or infinite gradient
};

struct StepOptions {
  double lr = 0;
  double weight_decay = 0;  ///< of parameters without the no_decay tag
  bool count_zeros = false;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Checks the gradients for NaN and infinity, clips them to the configured norm and updates the weights. Gradients must be finished.
  virtual StepResult step(const StepOptions& options) = 0;
  /// Visits every state tensor (local shape of its parameter): Adam's "exp_avg" and "exp_avg_sq", SGD's "momentum_buffer".
  virtual void visit_state(const std::function<void(const Parameter&, const std::string& state, at::Tensor& tensor)>& visitor) = 0;
  /// Updates applied so far (Adam's bias correction); saved and restored with the state.
  virtual std::int64_t num_steps() const = 0;
  virtual void set_num_steps(std::int64_t steps) = 0;
};

/// The optimizer that `config.optimizer` names, over the parameters of `store`, which must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store);

}  // namespace megatron
