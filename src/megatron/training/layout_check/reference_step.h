// The first step of a run on one rank, with everything that a layout must reproduce.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "megatron/config/run_settings.h"
#include "megatron/models/model_family.h"
#include "megatron/training/layout_check/tensor_difference.h"

namespace megatron {

/// A kind of value that a check compares, in the order in which a step computes them.
enum class CheckedKind { initial_weight, activation, loss, gradient, grad_norm, updated_weight };

/// Returns "initial weight", "activation" …
const char* name_of(CheckedKind kind);

struct ReferenceStep {
  /// Whole tensors in float64 by the name of the parameter.
  NamedTensors initial_weights, gradients, updated_weights;
  /// Outputs [rows, b, …] of an op by the ordinal of the microbatch's first sample.
  std::map<std::string, std::map<std::int64_t, at::Tensor>> activations;
  std::vector<std::string> ops;  ///< in the order of the forward pass
  double loss = 0, grad_norm = 0;

  /// Returns the tensors of one kind that parameters have.
  const NamedTensors& of(CheckedKind kind) const;
};

/// Runs the step in this thread. `alone` must be resolved for one rank (on_one_rank()).
ReferenceStep run_reference_step(const RunConfig& alone,
                                 const ModelFamilies& families = library_families());

}  // namespace megatron
