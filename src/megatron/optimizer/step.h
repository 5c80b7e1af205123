// The inputs and the outcome of one optimizer step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

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

}  // namespace megatron
