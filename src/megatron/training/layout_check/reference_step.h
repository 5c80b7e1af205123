// The first step of a run on one rank, with everything that a layout must reproduce.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "megatron/config/run_settings.h"
#include "megatron/models/model.h"
#include "megatron/models/model_family.h"
#include "megatron/params/parameter.h"
#include "megatron/training/layout_check/tensor_difference.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/step/train_step.h"

namespace megatron {

/// A kind of value that a check compares, in the order in which a step computes them.
enum class CheckedKind { initial_weight, activation, loss, gradient, grad_norm, updated_weight };

/// Returns "initial weight", "activation" …
const char* name_of(CheckedKind kind);

/// A rank that is a thread of this process has one thread for its kernels and is bound to no CPU:
/// its share of so many is none.
inline constexpr std::int64_t kUnboundCpus = 1 << 20;

/// Receives every activation, gradient and weight of a step. The step on one rank records them;
/// that of a mesh compares them.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// The output of an op in the forward pass of a microbatch, in the order of the pass.
  virtual void activation(const std::string& op, const Microbatch& microbatch,
                          const at::Tensor& output) = 0;
  /// The weight that layers compute with, before the step or after its update, or its reduced
  /// gradient, in the shape of the rank's part.
  virtual void tensor(CheckedKind kind, const Parameter& parameter, const at::Tensor& value) = 0;
};

/// Runs the first step of a trainer. Collective over the world.
TrainStepResult run_observed_step(Trainer& trainer, StepObserver& observer);

struct ReferenceStep {
  /// Weights before and after the step, and gradients: whole tensors in float64, by the name of the
  /// parameter.
  std::map<CheckedKind, NamedTensors> tensors;
  /// Outputs [rows, b, …] of an op by the ordinal of the microbatch's first sample.
  std::map<std::string, std::map<std::int64_t, at::Tensor>> activations;
  std::vector<std::string> ops;  ///< in the order of the forward pass
  std::vector<ModelUnit> units;
  double loss = 0, grad_norm = 0;
};

/// Runs the step in this thread. `alone` must be resolved for one rank (on_one_rank()).
ReferenceStep run_reference_step(const RunConfig& alone,
                                 const ModelFamilies& families = library_families());

}  // namespace megatron
