// Runs one training step of a trainer and hands every activation, gradient and weight to an
// observer. The step on one rank records them; the step of a mesh compares them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "megatron/params/parameter.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/step/train_step.h"

namespace megatron {

/// A rank that is a thread of this process has one thread for its kernels and is bound to no CPU:
/// its share of so many is none.
inline constexpr std::int64_t kUnboundCpus = 1 << 20;

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// The output of an op in the forward pass of a microbatch, in the order of the pass.
  virtual void activation(const std::string& op, const Microbatch& microbatch,
                          const at::Tensor& output) = 0;
  /// The weight that layers compute with, before the step and after its update.
  virtual void initial_weight(const Parameter& parameter, const at::Tensor& value) = 0;
  virtual void updated_weight(const Parameter& parameter, const at::Tensor& value) = 0;
  /// The reduced gradient in the shape of the rank's part.
  virtual void gradient(const Parameter& parameter, const at::Tensor& gradient) = 0;
};

/// Runs the first step of a trainer. Collective over the world.
TrainStepResult run_observed_step(Trainer& trainer, StepObserver& observer);

}  // namespace megatron
